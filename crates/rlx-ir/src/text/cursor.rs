//! A place in a text, and the words that are read from there.

use crate::error::IrError;

/// What is wrong at a byte offset.
#[derive(Clone, Debug)]
pub(super) struct SyntaxError {
    pub(super) at: usize,
    pub(super) message: String,
}

impl SyntaxError {
    /// The error with line and column, both from 1.
    pub(super) fn locate(self, text: &str) -> IrError {
        let before = text.get(..self.at.min(text.len())).unwrap_or("");
        let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        IrError::Parse { line, column, message: self.message }
    }
}

pub(super) type Parsed<T> = Result<T, SyntaxError>;

pub(super) fn is_identifier_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

pub(super) fn is_identifier_part(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'.'
}

pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Cursor { text, at: 0 }
    }

    /// The offset of the next word.
    pub(super) fn at(&mut self) -> usize {
        self.skip();
        self.at
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(super) fn slice(&self, from: usize) -> &'t str {
        self.text.get(from..self.at).unwrap_or("")
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        loop {
            while self.byte().is_some_and(|b| b.is_ascii_whitespace()) {
                self.at += 1;
            }
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// The next byte that is no space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.byte()
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    pub(super) fn error(&mut self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { at: self.at(), message: message.into() }
    }

    /// An error that says what was expected and what stands there.
    pub(super) fn expected(&mut self, what: &str) -> SyntaxError {
        self.skip();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        let found = if found.is_empty() { "the end of the text".into() } else { format!("`{found}`") };
        self.error(format!("expected {what}, found {found}"))
    }

    /// Takes a punctuation mark if it comes next.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: &str, context: &str) -> Parsed<()> {
        if self.eat(mark) { Ok(()) } else { Err(self.expected(&format!("`{mark}` {context}"))) }
    }

    /// The identifier that comes next, not taken; empty if none does.
    pub(super) fn peek_word(&mut self) -> &'t str {
        self.skip();
        let rest = self.rest();
        if !rest.bytes().next().is_some_and(is_identifier_start) {
            return "";
        }
        let end = rest.bytes().position(|b| !is_identifier_part(b)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or("")
    }

    /// Takes the word if it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    pub(super) fn word(&mut self, what: &str) -> Parsed<&'t str> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.expected(what));
        }
        self.at += word.len();
        Ok(word)
    }

    /// The digits that come next; empty if none do.
    pub(super) fn digits(&mut self) -> &'t str {
        let rest = self.rest();
        let end = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    pub(super) fn integer(&mut self) -> Parsed<i64> {
        let start = self.at();
        self.eat("-");
        self.digits();
        self.slice(start).parse().map_err(|_| {
            self.at = start;
            self.expected("a 64-bit integer")
        })
    }

    /// A quoted string.
    pub(super) fn string(&mut self, what: &str) -> Parsed<String> {
        let start = self.at();
        if self.byte() != Some(b'"') {
            return Err(self.expected(what));
        }
        self.quoted()?;
        crate::attr::unquote(self.slice(start)).map_err(|message| SyntaxError { at: start, message })
    }

    /// An identifier or a quoted string.
    pub(super) fn name(&mut self, what: &str) -> Parsed<String> {
        if self.peek() == Some(b'"') { self.string(what) } else { self.word(what).map(Into::into) }
    }

    /// Passes a quoted string, whose opening quote comes next.
    fn quoted(&mut self) -> Parsed<()> {
        let start = self.at;
        let mut escaped = false;
        for (i, c) in self.rest().char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    self.at = start + i + 1;
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(SyntaxError { at: start, message: "the string has no closing quote".into() })
    }

    /// Text up to a top-level `,` or closing bracket, which is not taken; brackets and quotes inside are balanced.
    pub(super) fn raw_value(&mut self, what: &str) -> Parsed<&'t str> {
        let start = self.at();
        let mut open = Vec::new();
        while let Some(b) = self.byte() {
            match b {
                b'"' => {
                    self.quoted()?;
                    continue;
                }
                b'(' | b'[' | b'{' => open.push(b),
                b',' if open.is_empty() => break,
                b')' | b']' | b'}' => match (open.pop(), b) {
                    (None, _) => break,
                    (Some(b'('), b')') | (Some(b'['), b']') | (Some(b'{'), b'}') => {}
                    (Some(o), _) => {
                        let message = format!("`{}` is closed by `{}`", char::from(o), char::from(b));
                        return Err(SyntaxError { at: self.at, message });
                    }
                },
                _ => {}
            }
            self.at += 1;
        }
        if let Some(&o) = open.last() {
            return Err(SyntaxError {
                at: start,
                message: format!("`{}` in this value is never closed", char::from(o)),
            });
        }
        let value = self.slice(start).trim_end();
        if value.is_empty() { Err(self.expected(what)) } else { Ok(value) }
    }

    /// A tensor literal `dtype[dims](elements)`, as raw text.
    pub(super) fn raw_tensor(&mut self) -> Parsed<&'t str> {
        let start = self.at();
        self.word("a tensor like f32[2](1.0, 2.0)")?;
        for (open, close) in [("[", "]"), ("(", ")")] {
            self.expect(open, "of a tensor like f32[2](1.0, 2.0)")?;
            loop {
                match self.peek() {
                    Some(b) if close.as_bytes() == [b] => break,
                    Some(b',') => self.at += 1,
                    _ => {
                        self.raw_value(&format!("`{close}` of a tensor like f32[2](1.0, 2.0)"))?;
                    }
                }
            }
            self.at += 1;
        }
        Ok(self.slice(start))
    }
}
