//! Token buckets of messages and bytes, with the arithmetic of msgnode/sessions/limits/rate_limits.py.

/// One second's worth of what may be sent; 0 messages or bytes: any number.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    rate_messages: f64,
    rate_bytes: f64,
    messages: f64,
    bytes: f64,
    then: f64,
}

impl TokenBucket {
    /// A full bucket; `now` in seconds.
    pub fn new(messages: f64, bytes: f64, now: f64) -> Self {
        TokenBucket { rate_messages: messages, rate_bytes: bytes, messages, bytes, then: now }
    }

    fn fill(&mut self, now: f64) {
        let passed = (now - self.then).max(0.0);
        self.then = now;
        self.messages = refilled(self.messages, passed, self.rate_messages);
        self.bytes = refilled(self.bytes, passed, self.rate_bytes);
    }

    /// Fill it up to now; may something be taken?
    #[inline]
    pub fn has_room(&mut self, now: f64) -> bool {
        self.fill(now);
        (self.rate_messages == 0.0 || self.messages >= 1.0) && (self.rate_bytes == 0.0 || self.bytes > 0.0)
    }

    /// Take one message of so many bytes, whatever is left.
    #[inline]
    pub fn take(&mut self, size: usize) {
        self.messages -= 1.0;
        self.bytes -= size as f64;
    }

    /// Seconds until something may be taken.
    pub fn wait(&mut self, now: f64) -> f64 {
        self.fill(now);
        let messages =
            if self.rate_messages > 0.0 { (1.0 - self.messages) / self.rate_messages } else { 0.0 };
        // A byte above nothing is enough, but nothing is not.
        let bytes = if self.rate_bytes > 0.0 && self.bytes <= 0.0 {
            (1.0 - self.bytes) / self.rate_bytes
        } else {
            0.0
        };
        messages.max(bytes).max(0.0)
    }

    /// Has nothing been taken for so many seconds, so that it is as good as a new one?
    pub fn is_idle(&self, now: f64, seconds: f64) -> bool {
        let passed = now - self.then;
        let is_full = |left, rate| rate == 0.0 || refilled(left, passed, rate) >= rate;
        passed >= seconds
            && is_full(self.messages, self.rate_messages)
            && is_full(self.bytes, self.rate_bytes)
    }
}

fn refilled(left: f64, seconds: f64, rate: f64) -> f64 {
    (left + seconds * rate).min(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_brings_a_seconds_worth_and_no_more() {
        let mut bucket = TokenBucket::new(2.0, 0.0, 10.0);
        for now in [10.0, 10.0] {
            assert!(bucket.has_room(now));
            bucket.take(1);
        }
        assert!(!bucket.has_room(10.0));
        assert_eq!(0.5, bucket.wait(10.0));
        assert!(bucket.has_room(10.5));
        assert!(!bucket.is_idle(10.6, 0.2));
        assert!(!bucket.is_idle(100.0, 100.0));
        assert!(bucket.is_idle(100.0, 60.0));
    }

    #[test]
    fn a_message_larger_than_the_bucket_is_paid_off_before_the_next() {
        let mut bucket = TokenBucket::new(0.0, 100.0, 0.0);
        assert!(bucket.has_room(0.0));
        bucket.take(250);
        assert!(!bucket.has_room(1.5));
        assert_eq!(0.01, bucket.wait(1.5));
        assert!(bucket.has_room(1.51));
    }

    #[test]
    fn a_clock_that_goes_back_takes_nothing_away() {
        let mut bucket = TokenBucket::new(1.0, 0.0, 10.0);
        assert!(bucket.has_room(5.0));
    }
}
