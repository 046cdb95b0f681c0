//! Descriptors that belong to Python.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;

/// The descriptor of that number, for one system call.
///
/// This is the only unsafe code of the plane.  A descriptor that Python has closed meanwhile gives EBADF, or
/// is another one of this process: then the call waits for, reads or writes what Python itself would by
/// that number.  No memory depends on it.
#[allow(unsafe_code)]
pub fn borrow<'a>(number: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1, and it is used for one call, while Python keeps the descriptor open:
    // it takes a port from the plane, and a descriptor from the poller, before it closes either.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}
