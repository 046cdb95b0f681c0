//! The clock of the token buckets: monotonic, so that the time of day may be set without a refill.

/// Where seconds come from; a stopped clock is for tests, which say what time it is.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    Stopped(f64),
    Running(fn() -> f64),
}

impl Default for Clock {
    fn default() -> Self {
        Clock::Stopped(0.0)
    }
}

impl Clock {
    #[inline]
    pub fn seconds(self) -> f64 {
        match self {
            Clock::Stopped(seconds) => seconds,
            Clock::Running(now) => now(),
        }
    }
}
