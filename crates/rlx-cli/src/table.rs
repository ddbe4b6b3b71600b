//! Tables of text for people.

/// Columns aligned by their widest cell; numbers (cells that start with a digit, a sign or a dot) to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count());
        cells.chain(header.get(c).map(|h| h.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &[String]| {
        let mut s = String::new();
        for (i, (cell, w)) in cells.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(w.saturating_sub(cell.chars().count()));
            let number = cell.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c)) && !cell.contains(' ');
            let last = i + 1 == widths.len();
            match (number, last) {
                (true, _) => s.push_str(&format!("{pad}{cell}")),
                (false, true) => s.push_str(cell),
                (false, false) => s.push_str(&format!("{cell}{pad}")),
            }
            if !last {
                s.push_str("  ");
            }
        }
        out.push_str(s.trim_end());
        out.push('\n');
    };
    line(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    rows.iter().for_each(|r| line(r));
    out
}

/// A number of bytes for people.
pub fn bytes(n: f64) -> String {
    for (unit, size) in [("GiB", 1073741824.0), ("MiB", 1048576.0), ("KiB", 1024.0)] {
        if n >= size {
            return format!("{:.1} {unit}", n / size);
        }
    }
    format!("{n:.0} B")
}

/// A number of operations for people.
pub fn count(n: f64) -> String {
    for (unit, size) in [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if n >= size {
            return format!("{:.2} {unit}", n / size);
        }
    }
    format!("{n:.0}")
}
