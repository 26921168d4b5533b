//! A simulation: threads of which one runs at a time, in an order that a seed decides, by a clock of their own. The same seed
//! gives the same order, and so the same calls to a file system, which is how a failure is seen again.
//!
//! A thread runs until it waits, or until a *step*: the taking of a lock, which is a part of every call to the [memory file
//! system](crate::vfs::MemoryFs) too, the start of a thread, a notification. At some steps another thread goes on. Time passes when all threads
//! wait: it is then the moment that the first of them waits for. If none waits for a moment, none will ever go on: that is a deadlock,
//! and a panic says so.
//!
//! Threads belong to the simulation of the thread that started them. All others are as ever, so that the feature changes
//! nothing for them.
//!
//! In half of the simulations the store takes for much what is little: it works in more steps, and begins files anew sooner, so that crashes
//! and errors meet it in the middle of what would take megabytes otherwise. What is in files means the same.
//!
//! *Source:* FoundationDB's simulation, of which this is the part that orders threads, and its knobs.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is not done after so long will never be: somebody looks again and again for what does not come.
const MOST_TIME: Duration = Duration::from_secs(24 * 3600);
/// How long a look at the clock takes.
const LOOK: Duration = Duration::from_nanos(100);

/// How many there were.
static SIMULATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The place of the calling thread, if it belongs to a simulation.
pub(super) fn current() -> Option<Place> {
    PLACE.try_with(|place| place.borrow().clone()).ok().flatten()
}

/// The time.
pub(crate) fn now() -> Instant {
    current().map_or_else(Instant::now, |here| here.scheduler.now())
}

/// Whether in the simulation of this seed little does what takes much elsewhere.
#[must_use]
pub fn is_small(seed: u64) -> bool {
    // Drawn apart, so that it says nothing of the order of threads.
    Dice(!seed).below(2) == 0
}

/// How much of something is much: `usual`, or `small` in half of the simulations, so that little does what takes much elsewhere.
pub(crate) fn much(usual: u64, small: u64) -> u64 {
    match current() {
        Some(here) if here.scheduler.is_small => small,
        _ => usual,
    }
}

/// A random number that the seed decides, if the thread belongs to a simulation.
pub(crate) fn entropy() -> Option<u64> {
    current().map(|here| here.scheduler.lock().dice.next())
}

/// Runs `work` as the first thread of a simulation, waits for all threads that it started, and gives what it gave.
///
/// # Panics
/// If all threads wait and none of them for a moment, or if the clock has gone on by a day: `deadlock` is in the message. What `work`
/// panics with goes on to the caller.
pub fn run<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    assert!(current().is_none(), "a simulation inside of another one");
    let place = Place { scheduler: Arc::new(Scheduler::new(seed)), thread: 0 };
    let _seat = Seat::take(&place);
    let result = work();
    place.wait_for_others();
    result
}

/// The number of the simulation that the calling thread belongs to, if it does: each has another one.
#[must_use]
pub fn number() -> Option<u64> {
    current().map(|here| here.scheduler.number)
}

/// Does each of `works` on a thread of its own, which belongs to the simulation of the caller if there is one, and gives what they gave.
///
/// # Panics
/// With what any of them panics with, when all have ended, and if a thread cannot be started.
pub fn together<T: Send + 'static>(
    works: impl IntoIterator<Item = impl FnOnce() -> T + Send + 'static>,
) -> Vec<T> {
    let start = |work| thread::Builder::new().spawn(work).expect("a thread can be started");
    let threads: Vec<_> = works.into_iter().map(start).collect();
    let ended: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    let given = |end: std::thread::Result<T>| end.unwrap_or_else(|panic| resume_unwind(panic));
    ended.into_iter().map(given).collect()
}

/// Takes its place from the thread when it ends.
struct Seat(Place);

impl Seat {
    fn take(place: &Place) -> Self {
        PLACE.set(Some(place.clone()));
        Self(place.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        PLACE.set(None);
        self.0.end();
    }
}

/// Numbers that a seed decides (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// A condition, by its address.
    Condition(usize),
    /// Being unparked.
    Unpark,
    /// The end of a thread; `None`: of all others.
    End(Option<usize>),
    /// A moment.
    Time,
    /// A lock that somebody holds. Whether it has looked again since any other thread has done anything.
    Lock { looked: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Ready,
    Waits { on: Wait, until: Option<Duration> },
    Ended,
}

struct Thread {
    status: Status,
    /// Whether its last wait ended because its time was over.
    timed_out: bool,
    /// Whether it was unparked before it parked.
    token: bool,
    turn: Arc<Turn>,
}

/// Where a thread of the operating system waits until its simulated thread is the one that runs. It has a lock of its own: who hands
/// over holds none that the next one needs at once.
#[derive(Default)]
struct Turn {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl Turn {
    fn give(&self) {
        *self.has_come.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.comes.notify_one();
    }

    fn wait(&self) {
        let has_come = self.has_come.lock().unwrap_or_else(PoisonError::into_inner);
        let come = self.comes.wait_while(has_come, |has_come| !*has_come);
        *come.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

struct State {
    dice: Dice,
    /// At one step in so many another thread goes on.
    patience: usize,
    clock: Duration,
    threads: Vec<Thread>,
    /// The one that runs.
    running: usize,
    /// All wait for ever.
    is_dead: bool,
}

struct Scheduler {
    /// Which simulation of the process it is.
    number: u64,
    /// Whether [little does what takes much](is_small).
    is_small: bool,
    began: Instant,
    state: Mutex<State>,
}

/// A thread's place in a simulation.
#[derive(Clone)]
pub(super) struct Place {
    scheduler: Arc<Scheduler>,
    thread: usize,
}

impl Scheduler {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let patience = [1, 3, 20, 200][dice.below(4)];
        let mut state = State {
            dice,
            patience,
            clock: Duration::ZERO,
            threads: Vec::new(),
            running: 0,
            is_dead: false,
        };
        state.enroll();
        let number = SIMULATIONS.fetch_add(1, Ordering::Relaxed);
        Self { number, is_small: is_small(seed), began: Instant::now(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        let mut state = self.lock();
        state.clock += LOOK;
        self.began + state.clock
    }
}

impl State {
    fn enroll(&mut self) -> usize {
        self.threads.push(Thread {
            status: Status::Ready,
            timed_out: false,
            token: false,
            turn: Arc::default(),
        });
        self.threads.len() - 1
    }

    /// Has those go on whose wait `ends`.
    fn wake(&mut self, ends: impl Fn(Wait) -> bool) {
        for thread in &mut self.threads {
            if matches!(thread.status, Status::Waits { on, .. } if ends(on)) {
                (thread.status, thread.timed_out) = (Status::Ready, false);
            }
        }
    }

    /// A thread has done something: a lock that others wait for may be free.
    fn moved(&mut self) {
        for thread in &mut self.threads {
            if let Status::Waits { on: Wait::Lock { looked }, .. } = &mut thread.status {
                *looked = false;
            }
        }
    }

    /// The thread that goes on, if any ever will.
    fn next(&mut self) -> Option<usize> {
        loop {
            let can_go_on = |status| {
                let looks = Wait::Lock { looked: false };
                status == Status::Ready || matches!(status, Status::Waits { on, .. } if on == looks)
            };
            let all = self.threads.iter().enumerate();
            let ready: Vec<usize> =
                all.filter(|(_, thread)| can_go_on(thread.status)).map(|(at, _)| at).collect();
            if !ready.is_empty() {
                let next = ready[self.dice.below(ready.len())];
                self.threads[next].status = Status::Ready;
                return Some(next);
            }
            let until = |thread: &Thread| match thread.status {
                Status::Waits { until, .. } => until,
                _ => None,
            };
            let first = self.threads.iter().filter_map(until).min()?;
            self.clock = self.clock.max(first);
            if self.clock > MOST_TIME {
                return None;
            }
            for thread in &mut self.threads {
                if matches!(thread.status, Status::Waits { until: Some(until), .. } if until <= first)
                {
                    (thread.status, thread.timed_out) = (Status::Ready, true);
                }
            }
        }
    }
}

impl State {
    /// Decides on the thread that goes on, and gives where it waits. If there is none, the first one learns of it; the others stay
    /// where they are.
    fn hand_over(&mut self) -> Arc<Turn> {
        match self.next() {
            Some(next) => self.running = next,
            None => (self.is_dead, self.running) = (true, 0),
        }
        Arc::clone(&self.threads[self.running].turn)
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.scheduler.lock()
    }

    /// Has another thread go on, and comes back when it is this one's turn again.
    fn switch<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let next = state.hand_over();
        if state.running != self.thread {
            let turn = Arc::clone(&state.threads[self.thread].turn);
            drop(state);
            next.give();
            turn.wait();
            state = self.lock();
        }
        if std::mem::take(&mut state.is_dead) {
            let waiting: Vec<_> = state.threads.iter().map(|thread| thread.status).collect();
            // What unwinds may close what it holds.
            state.threads[self.thread].status = Status::Ready;
            drop(state);
            assert!(!std::thread::panicking(), "one more deadlock while a panic goes on");
            panic!("deadlock: every thread waits for another one: {waiting:?}");
        }
    }

    /// A moment at which another thread may go on.
    pub(super) fn step(&self) {
        let mut state = self.lock();
        state.moved();
        let patience = state.patience;
        if state.dice.below(patience) == 0 {
            self.switch(state);
        }
    }

    /// Waits; whether the time was over first.
    fn wait_on(&self, on: Wait, time: Option<Duration>) -> bool {
        let mut state = self.lock();
        if !matches!(on, Wait::Lock { .. }) {
            state.moved();
        }
        let until = time.map(|time| state.clock.saturating_add(time));
        state.threads[self.thread].status = Status::Waits { on, until };
        self.switch(state);
        self.lock().threads[self.thread].timed_out
    }

    /// Waits until the condition at an address is notified; whether the time was over first.
    pub(super) fn wait(&self, condition: usize, time: Option<Duration>) -> bool {
        self.wait_on(Wait::Condition(condition), time)
    }

    /// Has one or all go on that wait for the condition at an address.
    pub(super) fn notify(&self, condition: usize, all: bool) {
        let mut state = self.lock();
        let on = Wait::Condition(condition);
        if all {
            state.wake(|wait| wait == on);
        } else {
            let waits = |thread: &Thread| matches!(thread.status, Status::Waits { on: other, .. } if other == on);
            let waiting: Vec<usize> =
                (0..state.threads.len()).filter(|&at| waits(&state.threads[at])).collect();
            if !waiting.is_empty() {
                let pick = state.dice.below(waiting.len());
                let thread = &mut state.threads[waiting[pick]];
                (thread.status, thread.timed_out) = (Status::Ready, false);
            }
        }
        drop(state);
        self.step();
    }

    /// Lets others run because a lock is held by one of them.
    pub(super) fn wait_for_lock(&self) {
        self.wait_on(Wait::Lock { looked: true }, None);
    }

    fn wait_for_others(&self) {
        let others = |state: &State| {
            let mut others = state.threads.iter().enumerate();
            others.any(|(at, thread)| at != self.thread && thread.status != Status::Ended)
        };
        while others(&self.lock()) {
            self.wait_on(Wait::End(None), None);
        }
    }

    /// The thread has ended.
    fn end(&self) {
        let mut state = self.lock();
        state.threads[self.thread].status = Status::Ended;
        let thread = self.thread;
        state.moved();
        state.wake(|on| on == Wait::End(None) || on == Wait::End(Some(thread)));
        if state.threads.iter().any(|thread| thread.status != Status::Ended) {
            let next = state.hand_over();
            drop(state);
            next.give();
        }
    }
}

/// Threads as the standard library has them.
pub(crate) mod thread {
    use std::io;
    use std::time::Duration;

    pub(crate) use std::thread::Result;

    use super::{Place, Seat, Status, Wait};

    /// How a thread is started.
    pub(crate) struct Builder(std::thread::Builder);

    impl Builder {
        pub(crate) fn new() -> Self {
            Self(std::thread::Builder::new())
        }

        pub(crate) fn name(self, name: String) -> Self {
            Self(self.0.name(name))
        }

        pub(crate) fn stack_size(self, bytes: usize) -> Self {
            Self(self.0.stack_size(bytes))
        }

        pub(crate) fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let Some(here) = super::current() else {
                return Ok(JoinHandle { handle: self.0.spawn(work)?, place: None });
            };
            let thread = here.lock().enroll();
            let place = Place { scheduler: here.scheduler.clone(), thread };
            let theirs = place.clone();
            let started = self.0.spawn(move || {
                let seat = Seat::take(&theirs);
                theirs.wait_for_turn();
                let result = work();
                drop(seat);
                result
            });
            match started {
                Ok(handle) => {
                    here.step();
                    Ok(JoinHandle { handle, place: Some(place) })
                }
                Err(error) => {
                    here.lock().threads[thread].status = Status::Ended;
                    Err(error)
                }
            }
        }
    }

    impl Place {
        /// Waits until a thread that was just started is to run.
        fn wait_for_turn(&self) {
            let turn = self.lock().threads[self.thread].turn.clone();
            turn.wait();
        }
    }

    /// A thread, to be waited for.
    pub(crate) struct JoinHandle<T> {
        handle: std::thread::JoinHandle<T>,
        place: Option<Place>,
    }

    impl<T> JoinHandle<T> {
        pub(crate) fn join(self) -> std::thread::Result<T> {
            if let (Some(here), Some(place)) = (super::current(), &self.place) {
                while !place.is_ended() {
                    here.wait_on(Wait::End(Some(place.thread)), None);
                }
            }
            self.handle.join()
        }

        pub(crate) fn is_finished(&self) -> bool {
            self.place.as_ref().map_or_else(|| self.handle.is_finished(), Place::is_ended)
        }

        pub(crate) fn thread(&self) -> Thread {
            Thread { thread: self.handle.thread().clone(), place: self.place.clone() }
        }
    }

    impl Place {
        fn is_ended(&self) -> bool {
            self.lock().threads[self.thread].status == Status::Ended
        }
    }

    impl<T> std::fmt::Debug for JoinHandle<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.handle.fmt(f)
        }
    }

    /// What a thread is known by.
    #[derive(Clone)]
    pub(crate) struct Thread {
        thread: std::thread::Thread,
        place: Option<Place>,
    }

    impl Thread {
        pub(crate) fn id(&self) -> std::thread::ThreadId {
            self.thread.id()
        }

        pub(crate) fn unpark(&self) {
            let Some(place) = &self.place else { return self.thread.unpark() };
            let mut state = place.lock();
            let thread = &mut state.threads[place.thread];
            if matches!(thread.status, Status::Waits { on: Wait::Unpark, .. }) {
                thread.status = Status::Ready;
            } else {
                thread.token = true;
            }
        }
    }

    impl std::fmt::Debug for Thread {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.thread.fmt(f)
        }
    }

    pub(crate) fn current() -> Thread {
        Thread { thread: std::thread::current(), place: super::current() }
    }

    pub(crate) fn park() {
        let Some(here) = super::current() else { return std::thread::park() };
        if !std::mem::take(&mut here.lock().threads[here.thread].token) {
            here.wait_on(Wait::Unpark, None);
        }
    }

    pub(crate) fn sleep(time: Duration) {
        match super::current() {
            Some(here) => drop(here.wait_on(Wait::Time, Some(time))),
            None => std::thread::sleep(time),
        }
    }

    pub(crate) fn yield_now() {
        match super::current() {
            Some(here) => here.step(),
            None => std::thread::yield_now(),
        }
    }

    pub(crate) fn panicking() -> bool {
        std::thread::panicking()
    }
}

#[cfg(test)]
mod tests;
