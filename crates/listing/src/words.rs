//! The kernel's errors in the words of Go, in which runc reports them. Those of a C library depend on which one it is.

use husk_script::sys::Errno;

/// Returns the words of an error, if it is one of the kernel's.
pub(crate) fn of(errno: Errno) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == errno).map(|(_, words)| *words)
}

const WORDS: &[(Errno, &str)] = &[
    (Errno::PERM, "operation not permitted"),
    (Errno::NOENT, "no such file or directory"),
    (Errno::SRCH, "no such process"),
    (Errno::INTR, "interrupted system call"),
    (Errno::IO, "input/output error"),
    (Errno::NXIO, "no such device or address"),
    (Errno::TOOBIG, "argument list too long"),
    (Errno::NOEXEC, "exec format error"),
    (Errno::BADF, "bad file descriptor"),
    (Errno::CHILD, "no child processes"),
    (Errno::AGAIN, "resource temporarily unavailable"),
    (Errno::NOMEM, "cannot allocate memory"),
    (Errno::ACCESS, "permission denied"),
    (Errno::FAULT, "bad address"),
    (Errno::NOTBLK, "block device required"),
    (Errno::BUSY, "device or resource busy"),
    (Errno::EXIST, "file exists"),
    (Errno::XDEV, "invalid cross-device link"),
    (Errno::NODEV, "no such device"),
    (Errno::NOTDIR, "not a directory"),
    (Errno::ISDIR, "is a directory"),
    (Errno::INVAL, "invalid argument"),
    (Errno::NFILE, "too many open files in system"),
    (Errno::MFILE, "too many open files"),
    (Errno::NOTTY, "inappropriate ioctl for device"),
    (Errno::TXTBSY, "text file busy"),
    (Errno::FBIG, "file too large"),
    (Errno::NOSPC, "no space left on device"),
    (Errno::SPIPE, "illegal seek"),
    (Errno::ROFS, "read-only file system"),
    (Errno::MLINK, "too many links"),
    (Errno::PIPE, "broken pipe"),
    (Errno::DOM, "numerical argument out of domain"),
    (Errno::RANGE, "numerical result out of range"),
    (Errno::DEADLK, "resource deadlock avoided"),
    (Errno::NAMETOOLONG, "file name too long"),
    (Errno::NOLCK, "no locks available"),
    (Errno::NOSYS, "function not implemented"),
    (Errno::NOTEMPTY, "directory not empty"),
    (Errno::LOOP, "too many levels of symbolic links"),
    (Errno::NOMSG, "no message of desired type"),
    (Errno::IDRM, "identifier removed"),
    (Errno::CHRNG, "channel number out of range"),
    (Errno::L2NSYNC, "level 2 not synchronized"),
    (Errno::L3HLT, "level 3 halted"),
    (Errno::L3RST, "level 3 reset"),
    (Errno::LNRNG, "link number out of range"),
    (Errno::UNATCH, "protocol driver not attached"),
    (Errno::NOCSI, "no CSI structure available"),
    (Errno::L2HLT, "level 2 halted"),
    (Errno::BADE, "invalid exchange"),
    (Errno::BADR, "invalid request descriptor"),
    (Errno::XFULL, "exchange full"),
    (Errno::NOANO, "no anode"),
    (Errno::BADRQC, "invalid request code"),
    (Errno::BADSLT, "invalid slot"),
    (Errno::BFONT, "bad font file format"),
    (Errno::NOSTR, "device not a stream"),
    (Errno::NODATA, "no data available"),
    (Errno::TIME, "timer expired"),
    (Errno::NOSR, "out of streams resources"),
    (Errno::NONET, "machine is not on the network"),
    (Errno::NOPKG, "package not installed"),
    (Errno::REMOTE, "object is remote"),
    (Errno::NOLINK, "link has been severed"),
    (Errno::ADV, "advertise error"),
    (Errno::SRMNT, "srmount error"),
    (Errno::COMM, "communication error on send"),
    (Errno::PROTO, "protocol error"),
    (Errno::MULTIHOP, "multihop attempted"),
    (Errno::DOTDOT, "RFS specific error"),
    (Errno::BADMSG, "bad message"),
    (Errno::OVERFLOW, "value too large for defined data type"),
    (Errno::NOTUNIQ, "name not unique on network"),
    (Errno::BADFD, "file descriptor in bad state"),
    (Errno::REMCHG, "remote address changed"),
    (Errno::LIBACC, "can not access a needed shared library"),
    (Errno::LIBBAD, "accessing a corrupted shared library"),
    (Errno::LIBSCN, ".lib section in a.out corrupted"),
    (Errno::LIBMAX, "attempting to link in too many shared libraries"),
    (Errno::LIBEXEC, "cannot exec a shared library directly"),
    (Errno::ILSEQ, "invalid or incomplete multibyte or wide character"),
    (Errno::RESTART, "interrupted system call should be restarted"),
    (Errno::STRPIPE, "streams pipe error"),
    (Errno::USERS, "too many users"),
    (Errno::NOTSOCK, "socket operation on non-socket"),
    (Errno::DESTADDRREQ, "destination address required"),
    (Errno::MSGSIZE, "message too long"),
    (Errno::PROTOTYPE, "protocol wrong type for socket"),
    (Errno::NOPROTOOPT, "protocol not available"),
    (Errno::PROTONOSUPPORT, "protocol not supported"),
    (Errno::SOCKTNOSUPPORT, "socket type not supported"),
    (Errno::NOTSUP, "operation not supported"),
    (Errno::PFNOSUPPORT, "protocol family not supported"),
    (Errno::AFNOSUPPORT, "address family not supported by protocol"),
    (Errno::ADDRINUSE, "address already in use"),
    (Errno::ADDRNOTAVAIL, "cannot assign requested address"),
    (Errno::NETDOWN, "network is down"),
    (Errno::NETUNREACH, "network is unreachable"),
    (Errno::NETRESET, "network dropped connection on reset"),
    (Errno::CONNABORTED, "software caused connection abort"),
    (Errno::CONNRESET, "connection reset by peer"),
    (Errno::NOBUFS, "no buffer space available"),
    (Errno::ISCONN, "transport endpoint is already connected"),
    (Errno::NOTCONN, "transport endpoint is not connected"),
    (Errno::SHUTDOWN, "cannot send after transport endpoint shutdown"),
    (Errno::TOOMANYREFS, "too many references: cannot splice"),
    (Errno::TIMEDOUT, "connection timed out"),
    (Errno::CONNREFUSED, "connection refused"),
    (Errno::HOSTDOWN, "host is down"),
    (Errno::HOSTUNREACH, "no route to host"),
    (Errno::ALREADY, "operation already in progress"),
    (Errno::INPROGRESS, "operation now in progress"),
    (Errno::STALE, "stale file handle"),
    (Errno::UCLEAN, "structure needs cleaning"),
    (Errno::NOTNAM, "not a XENIX named type file"),
    (Errno::NAVAIL, "no XENIX semaphores available"),
    (Errno::ISNAM, "is a named type file"),
    (Errno::REMOTEIO, "remote I/O error"),
    (Errno::DQUOT, "disk quota exceeded"),
    (Errno::NOMEDIUM, "no medium found"),
    (Errno::MEDIUMTYPE, "wrong medium type"),
    (Errno::CANCELED, "operation canceled"),
    (Errno::NOKEY, "required key not available"),
    (Errno::KEYEXPIRED, "key has expired"),
    (Errno::KEYREVOKED, "key has been revoked"),
    (Errno::KEYREJECTED, "key was rejected by service"),
    (Errno::OWNERDEAD, "owner died"),
    (Errno::NOTRECOVERABLE, "state not recoverable"),
    (Errno::RFKILL, "operation not possible due to RF-kill"),
    (Errno::HWPOISON, "memory page has hardware error"),
];

#[cfg(test)]
mod tests {
    use super::WORDS;

    /// Go made its words of those of glibc.
    #[test]
    #[cfg(target_env = "gnu")]
    fn words_are_those_of_the_c_library() {
        for (errno, words) in WORDS {
            let number = errno.raw_os_error();
            let said = std::io::Error::from_raw_os_error(number).to_string();
            assert_eq!(said.to_lowercase(), format!("{} (os error {number})", words.to_lowercase()));
        }
    }

    #[test]
    fn errors_are_in_the_order_of_their_numbers() {
        assert!(WORDS.is_sorted_by_key(|(errno, _)| errno.raw_os_error()));
    }
}
