//! Names out of a file, made fit for a message: bounded in length, control characters escaped.

const LONGEST: usize = 120;

/// A name as it may stand in a message.
pub(crate) fn shown(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if i == LONGEST {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// At most ten names, comma-separated, and how many more there are.
pub(crate) fn listed(names: &[String]) -> String {
    const MOST: usize = 10;
    let head: Vec<String> = names.iter().take(MOST).map(|n| format!("'{}'", shown(n))).collect();
    let more = names.len().saturating_sub(MOST);
    if more == 0 { head.join(", ") } else { format!("{} and {more} more", head.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_harmless() {
        assert_eq!(shown("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(shown("ünïcode/0"), "ünïcode/0");
        assert_eq!(shown(&"x".repeat(1 << 20)).chars().count(), LONGEST + 1);
        let many: Vec<String> = (0..12).map(|i| i.to_string()).collect();
        assert!(listed(&many).ends_with("'9' and 2 more"));
    }
}
