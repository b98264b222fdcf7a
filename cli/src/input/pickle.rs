//! Python's pickles, as far as they hold plain values: dicts, lists, tuples, text and numbers.
//!
//! A pickle is a program for a stack machine, and may tell Python to import and call anything. This machine knows no
//! such opcode: a pickle that has one is refused, and nothing runs. Values are shared and never copied, so that a
//! pickle that doubles itself at every step (a memo bomb), or that holds itself, costs no more than its bytes;
//! libraries that expand what is shared do not have that bound. For the same reason a container is taken out of the
//! pickle when it is looked at: who meets it again finds it empty. Protocols 2 to 5, which are what `pickle.dump` of
//! Python 3 writes.

use std::cmp::Ordering;
use std::mem;

/// The first byte of a pickle.
pub(super) const PROTO: u8 = 0x80;

/// The most values that a pickle may make: 1 GiB of memory.
const MOST_VALUES: usize = 1 << 26;

/// One value; containers and text are looked up in the [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// An integer that fits in 64 bits.
    Int(i64),
    /// Text or bytes: a range of the file.
    Text(u32, u32),
    /// A list or a tuple: its number among the containers.
    List(u32),
    /// A dict: its number among the containers.
    Dict(u32),
    /// What nobody here needs: `None`, booleans, floats, larger integers.
    Other,
}

/// A pickle that was read.
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    /// Items of the lists; keys and values in turn of the dicts.
    containers: Vec<Vec<Value>>,
    /// The outermost value.
    pub(super) root: Value,
}

/// Keys and values in turn.
pub(super) struct Dict(Vec<Value>);

/// Why a pickle cannot be read.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Which byte.
    pub(super) byte: usize,
    /// What is wrong there.
    pub(super) message: String,
}

impl<'a> Pickle<'a> {
    /// Runs the pickle's program.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut machine = Machine {
            bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            containers: Vec::new(),
            values: 0,
        };
        loop {
            let opcode_at = machine.at;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => return Ok(Self { bytes, containers: machine.containers, root }),
                Err(message) => return Err(Refusal { byte: opcode_at, message }),
            }
        }
    }

    /// Takes the items of a list or tuple; there are none the second time.
    pub(super) fn take_list(&mut self, value: Value) -> Option<Vec<Value>> {
        match value {
            Value::List(i) => self.containers.get_mut(i as usize).map(mem::take),
            _ => None,
        }
    }

    /// Takes a dict; it is empty the second time.
    pub(super) fn take_dict(&mut self, value: Value) -> Option<Dict> {
        match value {
            Value::Dict(i) => self.containers.get_mut(i as usize).map(mem::take).map(Dict),
            _ => None,
        }
    }

    /// What a dict has under a key.
    pub(super) fn get(&self, Dict(items): &Dict, key: &str) -> Option<Value> {
        let pairs = items.chunks_exact(2);
        pairs.rev().find(|pair| self.text(pair[0]) == Some(key.as_bytes())).map(|pair| pair[1])
    }

    /// The bytes of a text.
    pub(super) fn text(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text(begin, end) => self.bytes.get(begin as usize..end as usize),
            _ => None,
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Value>,
    containers: Vec<Vec<Value>>,
    /// How many values were made.
    values: usize,
}

impl Machine<'_> {
    /// Runs one opcode; the outermost value if it is the last.
    fn step(&mut self) -> Result<Option<Value>, String> {
        match self.take(1)?[0] {
            PROTO => match self.take(1)?[0] {
                2..=5 => {}
                other => return Err(format!("expected a pickle of protocol 2 to 5, found {other}")),
            },
            // A frame says only how long it is.
            0x95 => drop(self.take(8)?),
            b'.' => return self.pop().map(Some),
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' | 0x88 | 0x89 => self.push(Value::Other)?,
            b'K' => self.integer(1, false)?,
            b'M' => self.integer(2, false)?,
            b'J' => self.integer(4, true)?,
            0x8a => {
                let len = self.length(1)?;
                self.integer(len, true)?;
            }
            0x8b => {
                let len = self.length(4)?;
                self.integer(len, true)?;
            }
            b'G' => {
                self.take(8)?;
                self.push(Value::Other)?;
            }
            0x8c | b'C' | b'U' => self.counted_text(1)?,
            b'X' | b'B' | b'T' => self.counted_text(4)?,
            0x8d | 0x8e | 0x96 => self.counted_text(8)?,
            b']' | b')' => self.container(Value::List, Vec::new())?,
            b'}' => self.container(Value::Dict, Vec::new())?,
            b'l' | b't' => {
                let items = self.pop_to_mark()?;
                self.container(Value::List, items)?;
            }
            b'd' => {
                let items = self.pop_to_mark()?;
                self.container(Value::Dict, items)?;
            }
            n @ 0x85..=0x87 => {
                let items = self.pop_many((n - 0x84).into())?;
                self.container(Value::List, items)?;
            }
            b'a' => self.extend(1)?,
            b's' => self.extend(2)?,
            b'e' | b'u' => {
                let items = self.pop_to_mark()?;
                self.append(&items)?;
            }
            0x94 => self.memoize(self.memo.len())?,
            b'q' => {
                let number = self.length(1)?;
                self.memoize(number)?;
            }
            b'r' => {
                let number = self.length(4)?;
                self.memoize(number)?;
            }
            b'h' => {
                let number = self.length(1)?;
                self.recall(number)?;
            }
            b'j' => {
                let number = self.length(4)?;
                self.recall(number)?;
            }
            code => return Err(refuse(code)),
        }
        Ok(None)
    }

    fn take(&mut self, len: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(len).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    /// An unsigned number of `width` bytes.
    fn length(&mut self, width: usize) -> Result<usize, String> {
        let number = self.take(width)?.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        usize::try_from(number).map_err(|_| CUT.into())
    }

    fn integer(&mut self, width: usize, signed: bool) -> Result<(), String> {
        let bytes = self.take(width)?;
        let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
        let sign = if negative { -1i128 } else { 0 };
        // Python writes no more bytes than it needs: 64 bits take at most nine.
        let value = (bytes.len() <= 9).then(|| bytes.iter().rev().fold(sign, |n, &b| n << 8 | i128::from(b)));
        self.push(value.and_then(|v| i64::try_from(v).ok()).map_or(Value::Other, Value::Int))
    }

    fn counted_text(&mut self, width: usize) -> Result<(), String> {
        let len = self.length(width)?;
        let begin = self.at;
        self.take(len)?;
        let place = |at: usize| u32::try_from(at).map_err(|_| CUT.to_string());
        self.push(Value::Text(place(begin)?, place(self.at)?))
    }

    fn container(&mut self, kind: fn(u32) -> Value, items: Vec<Value>) -> Result<(), String> {
        let number = u32::try_from(self.containers.len()).map_err(|_| too_many())?;
        // The vector itself weighs as much as two values.
        self.made(2)?;
        self.containers.push(items);
        self.push(kind(number))
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        self.made(1)?;
        self.stack.push(value);
        Ok(())
    }

    /// Counts what takes memory.
    fn made(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        if self.values > MOST_VALUES { Err(too_many()) } else { Ok(()) }
    }

    /// What lies below a mark is out of reach.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Value, String> {
        self.stack.last().copied().filter(|_| self.stack.len() > self.floor()).ok_or_else(|| SHORT.into())
    }

    fn pop(&mut self) -> Result<Value, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self) -> Result<(), String> {
        self.made(1)?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, String> {
        let mark = self.marks.pop().ok_or("expected a mark on the pickle's stack")?;
        Ok(self.stack.split_off(mark))
    }

    /// Appends the `n` values on top to the container under them.
    fn extend(&mut self, n: usize) -> Result<(), String> {
        let items = self.pop_many(n)?;
        self.append(&items)
    }

    /// The `n` values on top, none of them below a mark.
    fn pop_many(&mut self, n: usize) -> Result<Vec<Value>, String> {
        let from = self.stack.len().checked_sub(n).filter(|&from| from >= self.floor()).ok_or(SHORT)?;
        Ok(self.stack.split_off(from))
    }

    fn append(&mut self, items: &[Value]) -> Result<(), String> {
        self.made(items.len())?;
        match self.top()? {
            Value::List(i) | Value::Dict(i) => {
                self.containers.get_mut(i as usize).ok_or(SHORT)?.extend_from_slice(items);
                Ok(())
            }
            _ => Err("expected a list or a dict to add to".into()),
        }
    }

    /// Python numbers what it memoizes from 0 without gaps.
    fn memoize(&mut self, number: usize) -> Result<(), String> {
        let top = self.top()?;
        self.made(1)?;
        match number.cmp(&self.memo.len()) {
            Ordering::Less => self.memo[number] = top,
            Ordering::Equal => self.memo.push(top),
            Ordering::Greater => return Err(format!("expected memo {}, found {number}", self.memo.len())),
        }
        Ok(())
    }

    fn recall(&mut self, number: usize) -> Result<(), String> {
        let value = *self.memo.get(number).ok_or_else(|| format!("memo {number} was never written"))?;
        self.push(value)
    }
}

const CUT: &str = "the pickle is cut off: expected more bytes";
const SHORT: &str = "the pickle takes more from its stack than is there";

fn too_many() -> String {
    format!("the pickle holds more than {MOST_VALUES} values; record fewer events (max_entries)")
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
