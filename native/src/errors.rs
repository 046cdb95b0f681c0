//! Errors of system calls, as Python's OSError with errno and text.

use pyo3::exceptions::PyOSError;
use pyo3::PyErr;
use rustix::io::Errno;

/// Python chooses the class by the number: PermissionError for EPERM, and so on.
pub fn os_error(errno: Errno) -> PyErr {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((errno.raw_os_error(), text))
}
