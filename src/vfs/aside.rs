//! Calls that a thread of its own makes, in their order, while the caller goes on: so a merge does not stand still while the
//! device reads or writes.
//!
//! A read is [begun](Aside::begin_read) before its bytes are needed, if reads [are slow](Aside::reads_are_slow): to hand
//! over one that the system answers from memory, and to be woken, takes longer than to make it. A file is written
//! [`behind`](Aside::behind): writes and syncs return at once, and nothing is known of them until
//! [`finish`](Aside::finish). After an error of a write no further call is made, nor after a panic, which is an error of
//! kind `Poisoned`: those that wait, and later ones, give the error, too.
//!
//! Only so many bytes wait to be written; who brings more waits for room. The thread is started for the first call, and
//! where there is none to be had, the caller makes its calls itself.
//!
//! Thread safety: files and the thread may be used from any thread; a file is written by one. When this is dropped, what
//! waits is given up, and no call is under way any more.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{File, Hint, IoStats, View};
use crate::error::{Error, Result};
use crate::sync::{
    self, Condvar, Mutex, MutexGuard,
    thread::{self, JoinHandle},
};

/// The most bytes that wait to be written; one write may be larger.
const MOST_WAITING: usize = 1 << 20;
/// Writing takes little stack; what is not touched costs no memory.
const STACK: usize = 256 << 10;
/// A read that takes less is not worth two switches between threads.
const QUICK: Duration = Duration::from_micros(100);

/// A thread that reads or writes.
#[derive(Debug)]
pub(crate) struct Aside {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// That of the thread.
    name: &'static str,
    queue: Mutex<Queue>,
    /// Told of every change.
    changed: Condvar,
    /// Whether the last read was not quick.
    reads_are_slow: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// The bytes to be written, of those and of the call under way.
    bytes: usize,
    is_busy: bool,
    failed: Option<Error>,
    closing: bool,
    thread: Serving,
}

/// Who makes the calls.
#[derive(Debug, Default)]
enum Serving {
    /// Nobody yet.
    #[default]
    Nobody,
    Thread(JoinHandle<()>),
    /// There is no thread to be had.
    Callers,
}

#[derive(Debug)]
struct Call {
    file: Arc<dyn File>,
    what: What,
}

#[derive(Debug)]
enum What {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate(u64),
    Sync,
    Read { range: Range<u64>, reading: Reading },
}

/// A read that was begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    read: Mutex<Option<Result<View>>>,
    is_read: Condvar,
}

impl Reading {
    /// Waits until it has ended, and gives the bytes.
    pub(crate) fn wait(self) -> Result<View> {
        let slot = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.0.is_read.wait_while(slot, |read| read.is_none());
        let read = slot.unwrap_or_else(PoisonError::into_inner).take();
        read.expect("it is waited for")
    }

    fn end(&self, read: Result<View>) {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(read);
        self.0.is_read.notify_one();
    }
}

impl Drop for Call {
    /// Nobody waits for ever for a read that was not made, or not to its end.
    fn drop(&mut self) {
        self.give_up(&if thread::panicking() { panicked() } else { Error::Closed });
    }
}

/// What a call has ended with that panicked.
fn panicked() -> Error {
    Error::Poisoned { cause: "a read or write ended by a panic".into() }
}

impl Call {
    /// Tells who waits for it why it is not made, if it was not.
    fn give_up(&self, error: &Error) {
        if let What::Read { reading, .. } = &self.what {
            reading.end(Err(error.clone()));
        }
    }

    fn make(&self, shared: &Shared) -> Result<()> {
        match &self.what {
            What::Read { range, reading } => {
                reading.end(shared.read(&*self.file, range.clone()));
                Ok(())
            }
            What::Write { offset, bytes } => self.file.write_at(*offset, bytes),
            What::Truncate(len) => self.file.truncate(*len),
            What::Sync => self.file.sync(),
        }
    }

    fn bytes(&self) -> usize {
        if let What::Write { bytes, .. } = &self.what { bytes.len() } else { 0 }
    }
}

impl Aside {
    /// One whose thread has this name.
    pub(crate) fn new(name: &'static str) -> Self {
        let (queue, changed) = (Mutex::default(), Condvar::default());
        let shared = Shared { name, queue, changed, reads_are_slow: AtomicBool::new(false) };
        Self { shared: Arc::new(shared) }
    }

    /// The file, written by the thread. It must not be read before [`finish`](Self::finish).
    pub(crate) fn behind(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Behind { file, shared: Arc::clone(&self.shared) })
    }

    /// Whether a read is worth being begun ahead: the last one was slow, and there is a thread to be had.
    pub(crate) fn reads_are_slow(&self) -> bool {
        self.shared.reads_are_slow.load(Ordering::Relaxed)
            && !matches!(self.shared.lock().thread, Serving::Callers)
    }

    /// Reads `range` now.
    pub(crate) fn read(&self, file: &dyn File, range: Range<u64>) -> Result<View> {
        self.shared.read(file, range)
    }

    /// Begins to read `range`. An error is given to who waits for it, and to nobody else.
    pub(crate) fn begin_read(&self, file: &Arc<dyn File>, range: Range<u64>) -> Reading {
        let reading = Reading::default();
        let what = What::Read { range, reading: reading.clone() };
        let call = Call { file: Arc::clone(file), what };
        // A call that is refused has ended.
        let _ = self.shared.hand_over(call);
        reading
    }

    /// Waits until all has been done that files were asked for.
    ///
    /// # Errors
    /// That of the first call that failed.
    pub(crate) fn finish(&self) -> Result<()> {
        let is_at_work = |queue: &mut Queue| queue.is_busy || !queue.calls.is_empty();
        let queue = self.shared.changed.wait_while(self.shared.lock(), is_at_work);
        let queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closing = true;
        queue.calls.clear();
        queue.bytes = 0;
        let thread = std::mem::take(&mut queue.thread);
        drop(queue);
        self.shared.changed.notify_all();
        if let Serving::Thread(thread) = thread {
            // It cannot panic: its calls are caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, file: &dyn File, range: Range<u64>) -> Result<View> {
        let begun = sync::now();
        let read = file.view(range);
        let taken = sync::now().saturating_duration_since(begun);
        self.reads_are_slow.store(taken >= QUICK, Ordering::Relaxed);
        read
    }

    /// Starts the thread, if there is none yet.
    fn start(self: &Arc<Self>, queue: &mut Queue) {
        if !matches!(queue.thread, Serving::Nobody) {
            return;
        }
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name(self.name.to_owned()).stack_size(STACK);
        queue.thread = match builder.spawn(move || shared.serve()) {
            Ok(thread) => Serving::Thread(thread),
            Err(error) => {
                log::debug!("no thread {}: {error}", self.name);
                Serving::Callers
            }
        };
    }

    /// Has the thread make a call, when there is room for its bytes.
    fn hand_over(self: &Arc<Self>, call: Call) -> Result<()> {
        let bytes = call.bytes();
        let is_full = |queue: &mut Queue| {
            queue.failed.is_none() && queue.bytes > 0 && queue.bytes + bytes > MOST_WAITING
        };
        let queue = self.changed.wait_while(self.lock(), is_full);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &queue.failed {
            call.give_up(error);
            return Err(error.clone());
        }
        if queue.closing {
            return Err(Error::Closed);
        }
        self.start(&mut queue);
        if matches!(queue.thread, Serving::Callers) {
            let made = call.make(self);
            return made.inspect_err(|error| queue.failed = Some(error.clone()));
        }
        queue.bytes += bytes;
        queue.calls.push_back(call);
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    /// What the thread does.
    fn serve(&self) {
        let mut queue = self.lock();
        loop {
            let nothing = |queue: &mut Queue| queue.calls.is_empty() && !queue.closing;
            queue = self.changed.wait_while(queue, nothing).unwrap_or_else(PoisonError::into_inner);
            let Some(call) = queue.calls.pop_front() else { return };
            queue.is_busy = true;
            drop(queue);
            let bytes = call.bytes();
            let made = catch_unwind(AssertUnwindSafe(move || call.make(self)));
            queue = self.lock();
            queue.is_busy = false;
            queue.bytes = queue.bytes.saturating_sub(bytes);
            if let Err(error) = made.unwrap_or_else(|_| Err(panicked())) {
                queue.calls.drain(..).for_each(|call| call.give_up(&error));
                queue.bytes = 0;
                queue.failed.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }
}

/// A file whose writes are handed to a thread.
struct Behind {
    file: Arc<dyn File>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Behind").field(&self.file).finish()
    }
}

impl Behind {
    fn hand_over(&self, what: What) -> Result<()> {
        self.shared.hand_over(Call { file: Arc::clone(&self.file), what })
    }
}

impl File for Behind {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.hand_over(What::Truncate(len))
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.file.allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.hand_over(What::Write { offset, bytes: bytes.to_vec() })
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let bytes = parts.concat();
        self.hand_over(What::Write { offset, bytes })
    }
    fn sync(&self) -> Result<()> {
        self.hand_over(What::Sync)
    }
    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.file.advise(range, hint);
    }
    fn alignment(&self) -> usize {
        self.file.alignment()
    }
    fn view(&self, range: Range<u64>) -> Result<View> {
        self.file.view(range)
    }
    fn stats(&self) -> IoStats {
        self.file.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::vfs::{
        Appender, Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, Times,
    };

    fn new_file(fs: &dyn Fs, name: &str) -> Arc<dyn File> {
        fs.create(Path::new(name), Layer::default()).unwrap()
    }

    #[test]
    fn what_was_handed_over_is_in_the_files_when_it_is_finished() {
        let fs = MemoryFs::new();
        let aside = Aside::new("test");
        let expected: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let files = ["a", "b"].map(|name| new_file(&fs, name));
        for file in &files {
            let mut appender = Appender::new(aside.behind(Arc::clone(file)), 10_000);
            expected.chunks(777).for_each(|part| appender.append(part).unwrap());
            appender.append_parts(&[IoSlice::new(&expected), IoSlice::new(b"end")]).unwrap();
            appender.finish().unwrap();
        }
        aside.finish().unwrap();
        for file in &files {
            let bytes = file.view(0..file.len().unwrap()).unwrap();
            assert!(*bytes == [&expected[..], &expected, b"end"].concat());
            assert_eq!(file.stats().syncs, 1);
        }
    }

    #[test]
    fn the_caller_goes_on_until_too_much_waits() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let slow = Fault::new(Operation::Write, Effect::Delay(Duration::from_millis(100)));
        fs.arm(Fault { times: Times::Always, ..slow });
        let aside = Aside::new("test");
        let file = aside.behind(new_file(&fs, "a"));
        let begun = Instant::now();
        file.write_at(0, &[1; 1000]).unwrap();
        file.sync().unwrap();
        assert!(begun.elapsed() < Duration::from_millis(100));
        file.write_at(1000, &vec![2; MOST_WAITING]).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(100), "the first one is done by then");
        aside.finish().unwrap();
        assert_eq!(file.len().unwrap(), 1000 + MOST_WAITING as u64);
    }

    #[test]
    fn nothing_is_done_behind_a_failure() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let aside = Aside::new("test");
        let (first, second) = (new_file(&fs, "a"), new_file(&fs, "b"));
        fs.arm(Fault { after: 1, ..Fault::new(Operation::Write, Effect::Fail(Errno::Raw(5))) });
        let files = [&first, &second].map(|file| aside.behind(Arc::clone(file)));
        files[0].write_at(0, b"good").unwrap();
        files[0].write_at(4, b"bad").unwrap();
        // Those that were handed over before it was known are not done.
        let _ = files[1].write_at(0, b"late");
        let error = aside.finish().unwrap_err().to_string();
        assert_eq!(files[1].sync().unwrap_err().to_string(), error);
        assert_eq!((first.len().unwrap(), second.len().unwrap()), (4, 0));
        assert_eq!((fs.calls(Operation::Write), fs.calls(Operation::Sync)), (2, 0));
    }

    #[test]
    fn reads_are_made_while_the_caller_goes_on() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let file = new_file(&fs, "a");
        file.write_at(0, b"0123456789").unwrap();
        let aside = Aside::new("test");
        fs.arm(Fault { after: 1, ..Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5))) });
        let readings = [0..4, 4..8, 8..10].map(|range| aside.begin_read(&file, range));
        let read = readings.map(|reading| reading.wait().map(|view| view.to_vec()).ok());
        assert_eq!(read, [Some(b"0123".to_vec()), None, Some(b"89".to_vec())]);
        fs.arm(Fault::new(Operation::Read, Effect::Delay(Duration::from_millis(50))));
        let readings = [0, 1, 2].map(|at| aside.begin_read(&file, at..at + 1));
        drop(aside);
        // Those that were not made have ended, too.
        assert!(readings.into_iter().any(|reading| reading.wait().is_err()));
    }

    #[test]
    fn a_read_that_panics_is_not_one_that_was_given_up() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let file = new_file(&fs, "a");
        file.write_at(0, b"0123456789").unwrap();
        fs.arm(Fault { after: 1, ..Fault::new(Operation::Read, Effect::Panic) });
        let slow = Effect::Delay(Duration::from_millis(20));
        fs.arm(Fault::new(Operation::Read, slow));
        let aside = Aside::new("test");
        let readings = [0..4, 4..8, 8..10].map(|range| aside.begin_read(&file, range));
        let [first, panicked, behind] = readings.map(Reading::wait);
        assert_eq!(*first.unwrap(), *b"0123");
        for read in [panicked, behind, aside.begin_read(&file, 0..1).wait()] {
            assert!(matches!(read, Err(Error::Poisoned { .. })), "{read:?}");
        }
        assert!(matches!(aside.finish(), Err(Error::Poisoned { .. })));
    }

    #[test]
    fn slow_reads_are_noticed_by_whoever_makes_them() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let file = new_file(&fs, "a");
        file.write_at(0, b"0123456789").unwrap();
        let aside = Aside::new("test");
        assert!(!aside.reads_are_slow() && matches!(aside.shared.lock().thread, Serving::Nobody));
        let delay = Fault::new(Operation::Read, Effect::Delay(2 * QUICK));
        fs.arm(delay.clone());
        assert_eq!(*aside.read(&*file, 0..4).unwrap(), *b"0123");
        assert!(aside.reads_are_slow());
        // A read may be interrupted, but not each of many.
        let is_quick_again = |_: &u32| {
            assert_eq!(*aside.begin_read(&file, 4..8).wait().unwrap(), *b"4567");
            !aside.reads_are_slow()
        };
        assert!((0..10_000).any(|round| is_quick_again(&round)));
        fs.arm(delay);
        assert_eq!(*aside.begin_read(&file, 8..10).wait().unwrap(), *b"89");
        assert!(aside.reads_are_slow());
    }

    #[test]
    fn callers_make_their_calls_if_there_is_no_thread() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let aside = Aside::new("test");
        aside.shared.lock().thread = Serving::Callers;
        let plain = new_file(&fs, "a");
        let file = aside.behind(Arc::clone(&plain));
        file.write_at(0, b"0123").unwrap();
        assert_eq!(*plain.view(0..4).unwrap(), *b"0123");
        assert_eq!(*aside.begin_read(&plain, 1..3).wait().unwrap(), *b"12");
        aside.shared.reads_are_slow.store(true, Ordering::Relaxed);
        assert!(!aside.reads_are_slow(), "nobody would read ahead");
        aside.finish().unwrap();
        fs.arm(Fault::new(Operation::Write, Effect::Fail(Errno::Raw(5))));
        let error = file.write_at(4, b"bad").unwrap_err().to_string();
        assert_eq!(file.sync().unwrap_err().to_string(), error);
        assert_eq!(aside.finish().unwrap_err().to_string(), error);
        assert_eq!(fs.calls(Operation::Sync), 0);
    }

    #[test]
    fn nothing_is_done_when_it_is_gone() {
        let fs = MemoryFs::new();
        let aside = Aside::new("test");
        let plain = new_file(&fs, "a");
        let file = aside.behind(Arc::clone(&plain));
        file.write_at(0, b"0123").unwrap();
        aside.finish().unwrap();
        drop(aside);
        assert!(matches!(file.write_at(4, &vec![0; 2 * MOST_WAITING]), Err(Error::Closed)));
        assert!(matches!(file.sync(), Err(Error::Closed)));
        assert_eq!(plain.len().unwrap(), 4);
    }

    #[test]
    fn what_waits_is_given_up_with_it() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        fs.arm(Fault::new(Operation::Write, Effect::Delay(Duration::from_millis(50))));
        let aside = Aside::new("test");
        let file = aside.behind(new_file(&fs, "a"));
        (0..10).for_each(|at| file.write_at(at, b"x").unwrap());
        drop(aside);
        assert!(fs.calls(Operation::Write) < 10);
    }
}
