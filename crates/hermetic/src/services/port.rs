//! Whether a TCP port listens in the network of a sandbox. It is looked up and not connected to, because some servers
//! treat a connection without data as an error.

use std::fs;

/// The state `TCP_LISTEN` (include/net/tcp_states.h) in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Returns whether a socket listens on the port in the network of a process.
pub(super) fn listens(pid: u32, port: u16) -> bool {
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    ["tcp", "tcp6"].iter().any(|name| has_listener(&table(name), port))
}

/// Searches a table of sockets (Documentation/networking/proc_net_tcp.rst).
fn has_listener(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::has_listener;

    #[test]
    fn only_a_listening_socket_counts() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 0100007F:1538 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:1539 0100007F:1540 01 00000000:00000000\n";
        assert!(has_listener(table, 0x1538));
        assert!(!has_listener(table, 0x1539) && !has_listener(table, 0x1540));
        assert!(!has_listener("", 1));
    }
}
