//! Text in XML.

use std::fmt::{self, Display, Formatter, Write as _};

/// Text, displayed for an element or an attribute. Control characters that XML cannot hold become Unicode control
/// pictures.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'t>(pub &'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\n' | '\t' => f.write_char(char),
            '\r' => f.write_str("&#13;"),
            '\0'..='\x1f' => {
                f.write_char(char::from_u32(0x2400 + char as u32).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            // XML allows DEL and the C1 controls, but a terminal may obey them.
            '\x7f'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => f.write_char(char::REPLACEMENT_CHARACTER),
            _ => f.write_char(char),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn characters_that_xml_cannot_hold_are_shown() {
        assert_eq!(Escaped("a<b>&\"c\x1b[1m\0\r\n").to_string(), "a&lt;b&gt;&amp;&quot;c␛[1m␀&#13;\n");
        assert_eq!(Escaped("ä\u{9b}31m\x7f").to_string(), "ä\u{fffd}31m\u{fffd}");
    }
}
