//! Reads Python's pickles of plain values: dicts, lists, tuples, text and numbers.
//!
//! A pickle is a program for a stack machine, and may tell Python to import and call anything. This machine has no such
//! opcode: a pickle with one is refused, and nothing runs. [`Build`] decides what is kept of lists and dicts, item by
//! item, so that a pickle of any length can be read without being held. Here only the stack is kept, which has a bound,
//! and a few bytes for each object that the pickle may refer to later. Objects are shared and never copied: a pickle
//! that doubles itself at every step, or that contains itself, costs no more than its bytes. It reads protocols 2 to 5,
//! which are what `pickle.dump` of Python 3 writes.

use std::cmp::Ordering;
use std::io::Read;

/// The first byte of a pickle.
pub(in super::super) const PROTO: u8 = 0x80;

/// The most objects that the pickle may refer to later; to remember so many takes 1 GiB.
const MOST_OBJECTS: usize = 1 << 27;
/// The most values that may wait on the stack; so many take 64 MiB. `pickle.dump` lets a thousand wait at each level of
/// nesting.
const MOST_WAITING: usize = 1 << 22;
/// Of longer texts only this many bytes are kept.
const LONGEST_TEXT: usize = 4096;

/// One value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<O> {
    /// An integer that fits in 64 bits.
    Int(i64),
    /// Anything else.
    Object(O),
}

/// Makes objects from the values of a pickle.
pub(super) trait Build {
    /// What stands for an object.
    type Object: Copy;
    /// Stands for an object that is not used: `None`, a boolean, a float, a larger integer.
    const OTHER: Self::Object;

    /// Makes a text, from text or bytes; of a long one the beginning is given.
    fn text(&mut self, text: &[u8]) -> Result<Self::Object, String>;

    /// Makes an empty list, or tuple.
    fn list(&mut self) -> Result<Self::Object, String>;

    /// Makes an empty dict.
    fn dict(&mut self) -> Result<Self::Object, String>;

    /// Adds items to a list, or keys and values in turn to a dict.
    fn add(&mut self, to: Self::Object, items: &[Value<Self::Object>]) -> Result<(), String>;
}

/// Why a pickle cannot be read.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Which byte.
    pub(super) byte: usize,
    /// What is wrong there.
    pub(super) message: String,
}

/// Runs the pickle's program; returns its outermost value.
pub(super) fn read<B: Build>(reader: impl Read, build: &mut B) -> Result<Value<B::Object>, Refusal> {
    let source = Source { reader, buffer: vec![0; 1 << 16], at: 0, end: 0, passed: 0 };
    let mut machine = Machine { source, build, stack: Vec::new(), marks: Vec::new(), memo: Vec::new() };
    loop {
        let byte = machine.source.place();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(root),
            Err(message) => return Err(Refusal { byte, message }),
        }
    }
}

/// A file, a part at a time.
struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Where the unread part of the buffer begins.
    at: usize,
    end: usize,
    /// How many bytes were read before those in the buffer.
    passed: usize,
}

impl<R: Read> Source<R> {
    /// The position of the next byte.
    fn place(&self) -> usize {
        self.passed + self.at
    }

    fn byte(&mut self) -> Result<u8, String> {
        if self.at == self.end {
            self.fill()?;
        }
        self.at += 1;
        Ok(self.buffer[self.at - 1])
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut taken = [0; N];
        for byte in &mut taken {
            *byte = self.byte()?;
        }
        Ok(taken)
    }

    /// Reads an unsigned number of `N` bytes: a length, or the number of an object.
    fn number<const N: usize>(&mut self) -> Result<usize, String> {
        let number = self.bytes::<N>()?.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        usize::try_from(number).map_err(|_| CUT.into())
    }

    /// Reads `len` bytes; returns the first [`LONGEST_TEXT`] of them.
    fn text(&mut self, len: usize) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let mut left = len;
        while left > 0 {
            if self.at == self.end {
                self.fill()?;
            }
            let part = left.min(self.end - self.at);
            let kept = part.min(LONGEST_TEXT - text.len());
            text.extend_from_slice(&self.buffer[self.at..self.at + kept]);
            self.at += part;
            left -= part;
        }
        Ok(text)
    }

    fn fill(&mut self) -> Result<(), String> {
        self.passed += self.end;
        (self.at, self.end) = (0, 0);
        self.end = self.reader.read(&mut self.buffer).map_err(|e| format!("cannot be read: {e}"))?;
        if self.end == 0 { Err(CUT.into()) } else { Ok(()) }
    }
}

struct Machine<'a, R, B: Build> {
    source: Source<R>,
    build: &'a mut B,
    stack: Vec<Value<B::Object>>,
    /// The marks that are set: how high the stack was at each.
    marks: Vec<usize>,
    memo: Vec<B::Object>,
}

impl<R: Read, B: Build> Machine<'_, R, B> {
    /// Runs one opcode; returns the outermost value if it is the last one.
    fn step(&mut self) -> Result<Option<Value<B::Object>>, String> {
        match self.source.byte()? {
            PROTO => match self.source.byte()? {
                2..=5 => {}
                other => return Err(format!("expected a pickle of protocol 2 to 5, found {other}")),
            },
            // The length of a frame, which is not needed.
            0x95 => drop(self.source.bytes::<8>()?),
            b'.' => return self.pop().map(Some),
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' | 0x88 | 0x89 => self.push(Value::Object(B::OTHER))?,
            b'K' => self.integer(1, false)?,
            b'M' => self.integer(2, false)?,
            b'J' => self.integer(4, true)?,
            0x8a => {
                let len = self.source.number::<1>()?;
                self.integer(len, true)?;
            }
            0x8b => {
                let len = self.source.number::<4>()?;
                self.integer(len, true)?;
            }
            b'G' => {
                self.source.bytes::<8>()?;
                self.push(Value::Object(B::OTHER))?;
            }
            0x8c | b'C' | b'U' => {
                let len = self.source.number::<1>()?;
                self.text(len)?;
            }
            b'X' | b'B' | b'T' => {
                let len = self.source.number::<4>()?;
                self.text(len)?;
            }
            0x8d | 0x8e | 0x96 => {
                let len = self.source.number::<8>()?;
                self.text(len)?;
            }
            code => self.step_of_containers(code)?,
        }
        Ok(None)
    }

    /// Runs an opcode that makes a container, adds to one, or names an object.
    fn step_of_containers(&mut self, code: u8) -> Result<(), String> {
        match code {
            b']' | b')' => self.list(&[]),
            b'}' => self.dict(&[]),
            b'l' | b't' => {
                let items = self.pop_to_mark()?;
                self.list(&items)
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.dict(&items)
            }
            n @ 0x85..=0x87 => {
                let items = self.pop_many((n - 0x84).into())?;
                self.list(&items)
            }
            b'a' | b's' => {
                let items = self.pop_many(if code == b'a' { 1 } else { 2 })?;
                self.add(&items)
            }
            b'e' | b'u' => {
                let items = self.pop_to_mark()?;
                self.add(&items)
            }
            0x94 => self.memoize(self.memo.len()),
            b'q' => {
                let number = self.source.number::<1>()?;
                self.memoize(number)
            }
            b'r' => {
                let number = self.source.number::<4>()?;
                self.memoize(number)
            }
            b'h' => {
                let number = self.source.number::<1>()?;
                self.recall(number)
            }
            b'j' => {
                let number = self.source.number::<4>()?;
                self.recall(number)
            }
            code => Err(refuse(code)),
        }
    }

    fn integer(&mut self, width: usize, signed: bool) -> Result<(), String> {
        let mut bytes = [0; 9];
        let Some(bytes) = bytes.get_mut(..width) else {
            // Python writes no more bytes than it needs: 64 bits take at most nine.
            self.source.text(width)?;
            return self.push(Value::Object(B::OTHER));
        };
        for byte in &mut *bytes {
            *byte = self.source.byte()?;
        }
        let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
        let value = bytes.iter().rev().fold(if negative { -1i128 } else { 0 }, |n, &b| n << 8 | i128::from(b));
        self.push(i64::try_from(value).map_or(Value::Object(B::OTHER), Value::Int))
    }

    fn text(&mut self, len: usize) -> Result<(), String> {
        let text = self.source.text(len)?;
        let text = self.build.text(&text)?;
        self.push(Value::Object(text))
    }

    fn list(&mut self, items: &[Value<B::Object>]) -> Result<(), String> {
        let list = self.build.list()?;
        self.made(list, items)
    }

    fn dict(&mut self, items: &[Value<B::Object>]) -> Result<(), String> {
        let dict = self.build.dict()?;
        self.made(dict, items)
    }

    fn made(&mut self, container: B::Object, items: &[Value<B::Object>]) -> Result<(), String> {
        if !items.is_empty() {
            self.build.add(container, items)?;
        }
        self.push(Value::Object(container))
    }

    fn push(&mut self, value: Value<B::Object>) -> Result<(), String> {
        if self.stack.len() >= MOST_WAITING {
            return Err(format!("more than {MOST_WAITING} values wait on the pickle's stack"));
        }
        self.stack.push(value);
        Ok(())
    }

    /// The stack's height at the last mark: nothing below it may be taken.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Value<B::Object>, String> {
        self.stack.last().copied().filter(|_| self.stack.len() > self.floor()).ok_or_else(|| SHORT.into())
    }

    fn pop(&mut self) -> Result<Value<B::Object>, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self) -> Result<(), String> {
        if self.marks.len() >= MOST_WAITING {
            return Err(format!("more than {MOST_WAITING} marks wait on the pickle's stack"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value<B::Object>>, String> {
        let mark = self.marks.pop().ok_or("expected a mark on the pickle's stack")?;
        Ok(self.stack.split_off(mark))
    }

    /// Takes the `n` values on top, none of them below a mark.
    fn pop_many(&mut self, n: usize) -> Result<Vec<Value<B::Object>>, String> {
        let from = self.stack.len().checked_sub(n).filter(|&from| from >= self.floor()).ok_or(SHORT)?;
        Ok(self.stack.split_off(from))
    }

    /// Adds items to the container on top.
    fn add(&mut self, items: &[Value<B::Object>]) -> Result<(), String> {
        match self.top()? {
            Value::Object(container) => self.build.add(container, items),
            Value::Int(_) => Err(NO_CONTAINER.into()),
        }
    }

    /// Remembers the value on top under this number. Python counts the numbers from 0 without gaps. It never remembers
    /// an integer, for which [`Build::OTHER`] stands here.
    fn memoize(&mut self, number: usize) -> Result<(), String> {
        let object = match self.top()? {
            Value::Object(object) => object,
            Value::Int(_) => B::OTHER,
        };
        match number.cmp(&self.memo.len()) {
            Ordering::Less => self.memo[number] = object,
            Ordering::Equal if number >= MOST_OBJECTS => return Err(too_many()),
            Ordering::Equal => self.memo.push(object),
            Ordering::Greater => return Err(format!("expected memo {}, found {number}", self.memo.len())),
        }
        Ok(())
    }

    fn recall(&mut self, number: usize) -> Result<(), String> {
        let object = *self.memo.get(number).ok_or_else(|| format!("memo {number} was never written"))?;
        self.push(Value::Object(object))
    }
}

const CUT: &str = "the pickle is cut off: expected more bytes";
const SHORT: &str = "the pickle takes more from its stack than is there";
/// For builders: adding to what is no list or dict.
pub(super) const NO_CONTAINER: &str = "expected a list or a dict to add to";

/// For builders: the pickle makes too much.
pub(super) fn too_many() -> String {
    "the pickle makes too many objects; record fewer events (max_entries)".into()
}

fn refuse(code: u8) -> String {
    let name = match code {
        b'c' | 0x93 => "import a Python object",
        b'R' | b'o' | 0x81 | 0x92 => "call a Python object",
        b'i' => "import and call a Python object",
        b'b' => "set the state of a Python object",
        b'P' | b'Q' | 0x82..=0x84 => "refer to an object outside itself",
        _ => return format!("expected an opcode of a pickle of plain values, found byte 0x{code:02x}"),
    };
    format!("the pickle wants to {name}; a memory snapshot holds plain values only, and nothing was run")
}
