//! The observer's answers. They never allow more than the filter of a sandbox that is not observed.

use crate::plan::filter::{self, NATIVE};
use husk_script::sys::errno;
use husk_script::sys::process::{CallAnswer, NotifiedCall};
use husk_seccomp::interpret::Data;
use husk_seccomp::{Action, Error, Machine, Table};

/// The kernel's answer to a caller that lacks permission.
const EPERM: u16 = 1;

/// Answers calls as the usual filter does.
pub(crate) struct Answers(Table);

impl Answers {
    pub(crate) fn new() -> Result<Self, Error> {
        Table::new(&filter::profile(), &Machine::new(NATIVE.0)).map(|(table, _unknown)| Self(table))
    }

    /// The decision depends only on the call's number and arguments, which the kernel has copied: the program cannot
    /// change them afterwards.
    pub(crate) fn answer(&self, call: &NotifiedCall) -> CallAnswer {
        let NotifiedCall { number, arch, instruction_pointer, arguments, .. } = *call;
        match self.0.look_up(&Data { number, arch, instruction_pointer, arguments }) {
            Action::Allow => CallAnswer::GoOn,
            Action::Errno(number) => CallAnswer::Fail(errno(number)),
            // `filter::profile` refuses with an error number only.
            _ => CallAnswer::Fail(errno(EPERM)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, NATIVE};
    use husk_script::sys::Errno;
    use husk_script::sys::process::{CallAnswer, NotifiedCall};
    use husk_seccomp::call_number;

    fn call(name: &str, first: u64) -> NotifiedCall {
        let number = call_number(name, NATIVE.0).unwrap();
        let arguments = [first, 0, 0, 0, 0, 0];
        NotifiedCall {
            id: 1,
            thread: 1,
            number,
            arch: NATIVE.0.audit_arch(),
            instruction_pointer: 0,
            arguments,
        }
    }

    #[test]
    fn calls_that_the_usual_filter_refuses_stay_refused() {
        let answers = Answers::new().unwrap();
        assert_eq!(answers.answer(&call("openat", 0)), CallAnswer::GoOn);
        assert_eq!(answers.answer(&call("bpf", 0)), CallAnswer::Fail(Errno::NOSYS));
        assert_eq!(answers.answer(&call("reboot", 0)), CallAnswer::Fail(Errno::PERM));
        let (vsock, unix) = (40, 1);
        assert_eq!(answers.answer(&call("socket", vsock)), CallAnswer::Fail(Errno::AFNOSUPPORT));
        assert_eq!(answers.answer(&call("socket", unix)), CallAnswer::GoOn);
        let foreign = NotifiedCall { arch: 7, ..call("openat", 0) };
        assert_eq!(answers.answer(&foreign), CallAnswer::Fail(Errno::PERM));
    }
}
