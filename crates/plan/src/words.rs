//! Explains why a program cannot start, in the words that engines look for.
//!
//! The words are those of Go's `os/exec`, which runc uses to find the program. Engines parse them to tell a
//! missing program (127) from one that may not be executed (126).

use husk_script::sys::Errno;
use std::ffi::CStr;

/// Explains why the program was not found.
pub(crate) fn not_found(program: &str, errno: Errno) -> Option<String> {
    let reason = match errno {
        Errno::NOENT if !program.contains('/') => "executable file not found in $PATH".to_owned(),
        Errno::NOENT => format!("stat {program}: no such file or directory"),
        Errno::NOTDIR => format!("stat {program}: not a directory"),
        Errno::LOOP => format!("stat {program}: too many levels of symbolic links"),
        Errno::ACCESS => "permission denied".to_owned(),
        // Go prints only the first half and execve(2) reports the second. docker 20 recognises only the second as
        // 126.
        Errno::ISDIR => "is a directory: permission denied".to_owned(),
        _ => return None,
    };
    Some(format!("exec: {program:?}: {reason}"))
}

/// Explains why the program's directory cannot be entered, in runc's words.
pub(crate) fn not_entered(path: &CStr, errno: Errno) -> Option<String> {
    let reason = match errno {
        Errno::NOENT => "no such file or directory",
        Errno::NOTDIR => "not a directory",
        Errno::ACCESS => "permission denied",
        _ => return None,
    };
    Some(format!("chdir to cwd (\"/{}\") failed: {reason}", path.to_string_lossy()))
}

/// Explains why a program that was found cannot be executed.
#[must_use]
pub fn not_begun(errno: Errno) -> Option<&'static str> {
    match errno {
        // The program itself existed when it was looked up, so its interpreter is missing.
        Errno::NOENT => Some("its interpreter does not exist"),
        Errno::NOEXEC => Some("it is neither a program for this machine nor a script that begins with #!"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_errors_use_the_words_engines_expect() {
        let words = |program, errno| not_found(program, errno).unwrap();
        assert_eq!(words("sh", Errno::NOENT), "exec: \"sh\": executable file not found in $PATH");
        assert_eq!(words("/sh", Errno::NOENT), "exec: \"/sh\": stat /sh: no such file or directory");
        assert_eq!(words("/a/b", Errno::NOTDIR), "exec: \"/a/b\": stat /a/b: not a directory");
        assert_eq!(words("sh", Errno::ACCESS), "exec: \"sh\": permission denied");
        assert_eq!(words("/etc", Errno::ISDIR), "exec: \"/etc\": is a directory: permission denied");
    }
}
