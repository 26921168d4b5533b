//! Locks and conditions as the standard library has them, for threads of a [simulation](super::simulated) and for others.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{
    LockResult, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};
use std::time::Duration;

use super::simulated::{self, Place};

/// A lock. In a simulation who has to wait for it lets others run.
#[derive(Default)]
pub(crate) struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// What holds a [`Mutex`].
pub(crate) struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    guard: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.wrap(take(|| self.0.try_lock(), || self.0.lock()))
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = |guard| MutexGuard { mutex: self, guard };
        match self.0.try_lock() {
            Ok(held) => Ok(guard(held)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                Err(TryLockError::Poisoned(PoisonError::new(guard(error.into_inner()))))
            }
        }
    }

    fn wrap<'a>(
        &'a self,
        held: LockResult<std::sync::MutexGuard<'a, T>>,
    ) -> LockResult<MutexGuard<'a, T>> {
        match held {
            Ok(guard) => Ok(MutexGuard { mutex: self, guard }),
            Err(error) => {
                Err(PoisonError::new(MutexGuard { mutex: self, guard: error.into_inner() }))
            }
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// Takes a lock: a thread of a simulation tries again and again, and others run meanwhile.
fn take<G>(
    try_lock: impl Fn() -> TryLockResult<G>,
    lock: impl FnOnce() -> LockResult<G>,
) -> LockResult<G> {
    let Some(here) = simulated::current() else { return lock() };
    here.step();
    loop {
        match try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => here.wait_for_lock(),
        }
    }
}

/// A lock for many readers or one writer.
#[derive(Default, Debug)]
pub(crate) struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    pub(crate) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        take(|| self.0.try_read(), || self.0.read())
    }

    pub(crate) fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    pub(crate) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        take(|| self.0.try_write(), || self.0.write())
    }

    pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    #[allow(dead_code, reason = "as the standard library has it")]
    pub(crate) fn timed_out(self) -> bool {
        self.0
    }
}

/// Where threads wait until something has changed.
#[derive(Default, Debug)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        match simulated::current() {
            Some(here) => here.notify(self.address(), false),
            None => self.0.notify_one(),
        }
    }

    pub(crate) fn notify_all(&self) {
        match simulated::current() {
            Some(here) => here.notify(self.address(), true),
            None => self.0.notify_all(),
        }
    }

    pub(crate) fn wait<'a, T>(&self, held: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { mutex, guard } = held;
        let Some(here) = simulated::current() else { return mutex.wrap(self.0.wait(guard)) };
        drop(guard);
        here.wait(self.address(), None);
        relock(mutex, &here)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        held: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let MutexGuard { mutex, guard } = held;
        let Some(here) = simulated::current() else {
            let with = |(guard, result): (_, std::sync::WaitTimeoutResult)| {
                (MutexGuard { mutex, guard }, WaitTimeoutResult(result.timed_out()))
            };
            let waited = self.0.wait_timeout(guard, time);
            return waited.map(with).map_err(|error| PoisonError::new(with(error.into_inner())));
        };
        drop(guard);
        let result = WaitTimeoutResult(here.wait(self.address(), Some(time)));
        match relock(mutex, &here) {
            Ok(guard) => Ok((guard, result)),
            Err(error) => Err(PoisonError::new((error.into_inner(), result))),
        }
    }

    pub(crate) fn wait_while<'a, T>(
        &self,
        mut held: MutexGuard<'a, T>,
        mut is_so: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while is_so(&mut held) {
            held = self.wait(held)?;
        }
        Ok(held)
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut held: MutexGuard<'a, T>,
        time: Duration,
        mut is_so: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let start = simulated::now();
        loop {
            if !is_so(&mut held) {
                return Ok((held, WaitTimeoutResult(false)));
            }
            let Some(left) = time.checked_sub(simulated::now() - start) else {
                return Ok((held, WaitTimeoutResult(true)));
            };
            held = self.wait_timeout(held, left)?.0;
        }
    }

    /// What it is known by: it does not move while somebody waits.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Takes a lock again after a wait, without a moment for others to run in between.
fn relock<'a, T>(mutex: &'a Mutex<T>, here: &Place) -> LockResult<MutexGuard<'a, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => here.wait_for_lock(),
        }
    }
}
