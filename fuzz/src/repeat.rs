//! Tries the same inputs each time: those that are committed, and changed versions of them, which depend only on their
//! number.
//!
//! What a fuzzer tries next depends on the code that it watches. So after each change of the code it tries other
//! inputs, and may find a fault that was there before. If the inputs are always the same, one fails only because of the
//! change.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, abort};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::{env, fs, io, panic};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The most bytes of an input.
const LONGEST: usize = 4096;

/// If an input takes more seconds than this, it counts as hanging.
const SECONDS: u64 = 120;

/// The main function of a fuzz target without a fuzzer. `TARGET FOLDER NUMBER [DICTIONARY]` tries the inputs of a
/// folder, and then NUMBER changed versions of them. The first that fails is written to `fuzz/artifacts`.
#[must_use]
pub fn main(test: fn(&[u8])) -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (folder, number) = (arguments.next(), arguments.next().and_then(|n| n.parse::<u64>().ok()));
    let (Some(folder), Some(number)) = (folder, number) else {
        eprintln!("expected: FOLDER NUMBER [DICTIONARY]");
        return ExitCode::from(2);
    };
    let inputs = match Inputs::read(folder.as_ref(), arguments.next().as_deref().map(Path::new)) {
        Ok(inputs) => INPUTS.get_or_init(|| inputs),
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        default(info);
        inputs.write(NOW.load(Ordering::Relaxed));
        abort();
    }));
    thread::spawn(|| watch(inputs));
    let count = inputs.committed.len() as u64 + number;
    for i in 0..count {
        NOW.store(i, Ordering::Relaxed);
        test(&inputs.get(i));
    }
    println!("{}: {} inputs and {number} changes", name(), inputs.committed.len());
    ExitCode::SUCCESS
}

static INPUTS: OnceLock<Inputs> = OnceLock::new();

/// The number of the input that is being tried.
static NOW: AtomicU64 = AtomicU64::new(0);

fn watch(inputs: &Inputs) {
    let (mut last, mut seconds) = (u64::MAX, 0);
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = NOW.load(Ordering::Relaxed);
        seconds = if now == last { seconds + 1 } else { 0 };
        last = now;
        if seconds > SECONDS {
            eprintln!("an input takes more than {SECONDS} seconds");
            inputs.write(now);
            abort();
        }
    }
}

fn name() -> String {
    let program = env::args().next().map(PathBuf::from);
    program.and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned())).unwrap_or_default()
}

struct Inputs {
    committed: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Inputs {
    fn read(folder: &Path, dictionary: Option<&Path>) -> io::Result<Self> {
        let mut files = fs::read_dir(folder)?.map(|f| f.map(|f| f.path())).collect::<io::Result<Vec<_>>>()?;
        files.sort_unstable();
        let committed = files.iter().map(fs::read).collect::<io::Result<Vec<_>>>()?;
        if committed.is_empty() {
            return Err(io::Error::other("there are no inputs"));
        }
        let words = dictionary.map(fs::read_to_string).transpose()?.unwrap_or_default();
        Ok(Self { committed, words: words.lines().filter_map(word).collect() })
    }

    /// The input of this number: first the committed ones, then changed versions.
    fn get(&self, i: u64) -> Vec<u8> {
        let committed = self.committed.len() as u64;
        match usize::try_from(i).ok().and_then(|i| self.committed.get(i)) {
            Some(input) => input.clone(),
            None => self.changed(i - committed),
        }
    }

    fn changed(&self, i: u64) -> Vec<u8> {
        let mut random = Random(SplitMix64::seed_from_u64(i));
        let mut input = random.of(&self.committed).clone();
        for _ in 0..1 + random.below(6) {
            self.change(&mut random, &mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&self, random: &mut Random, input: &mut Vec<u8>) {
        let at = random.below(input.len() + 1);
        let rest = input.len() - at;
        match random.below(8) {
            0 if rest > 0 => input[at] ^= 1 << random.below(8),
            1 if rest > 0 => input[at] = random.next() as u8,
            2 if rest > 0 => input[at] = *random.of(&[0, 1, 2, 0x7f, 0x80, 0xfe, 0xff]),
            3 => {
                let end = at + random.below(rest.min(16) + 1);
                input.drain(at..end);
            }
            4 => {
                let new: Vec<u8> = (0..=random.below(8)).map(|_| random.next() as u8).collect();
                input.splice(at..at, new);
            }
            5 if !self.words.is_empty() => {
                let word = random.of(&self.words).clone();
                input.splice(at..at, word);
            }
            6 => {
                let piece = random.piece(input).to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let other = random.of(&self.committed);
                let piece = random.piece(other).to_vec();
                let end = if random.below(2) == 0 { at } else { at + rest.min(piece.len()) };
                input.splice(at..end, piece);
            }
        }
    }

    /// Writes the input of this number to a file, so that the fault can be looked for.
    fn write(&self, i: u64) {
        let file = PathBuf::from("fuzz/artifacts").join(format!("{}-{i}", name()));
        let written = fs::create_dir_all("fuzz/artifacts").and_then(|()| fs::write(&file, self.get(i)));
        match written {
            Ok(()) => eprintln!("input {i} is in {}", file.display()),
            Err(e) => eprintln!("input {i} is not written: {e}"),
        }
    }
}

/// The word in a line of a dictionary, such as `"ab\x0a"`; `None` if the line has no word in quotes.
fn word(line: &str) -> Option<Vec<u8>> {
    let mut rest = line.strip_prefix('"')?.strip_suffix('"')?;
    let mut word = Vec::new();
    while let Some(byte) = rest.bytes().next() {
        let hex = rest.strip_prefix("\\x").and_then(|hex| hex.get(..2));
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                word.push(byte);
                rest = &rest[4..];
            }
            None => {
                word.push(byte);
                rest = rest.get(1..)?;
            }
        }
    }
    Some(word)
}

/// Random choices that depend on a number alone.
struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A random number below `end`, which must not be 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A random part of `bytes`, of at most 32 bytes.
    fn piece<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let begin = self.below(bytes.len() + 1);
        let len = self.below((bytes.len() - begin).min(32) + 1);
        &bytes[begin..begin + len]
    }
}
