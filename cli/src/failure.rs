//! Why a command failed, in sentences for people, with the exit status.

use std::fmt;
use std::io;

/// What ends a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no: no plan fits, or the plan is invalid. Status 1.
    No(String),
    /// There is no answer: no plan was found, and none is proved impossible. Status 3.
    Unknown(String),
    /// A file that is not as expected. Status 2.
    Input(InputError),
    /// Options that make no sense, or a file that cannot be written. Status 2.
    Usage(String),
    /// Standard output was closed: nothing more is printed. Status 2.
    NobodyListens,
}

/// Which place of which file is not as expected.
#[derive(Debug)]
pub(crate) struct InputError {
    /// The file's name, as given on the command line.
    pub(crate) file: String,
    /// The place in it, if there is one.
    pub(crate) place: Option<Place>,
    /// What is wrong and what was expected.
    pub(crate) message: String,
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte of a line, both counted from 1.
    Column(u64, usize),
    /// A byte of a binary file, counted from 0.
    Byte(usize),
}

impl Failure {
    /// The status that the process ends with.
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::No(_) => 1,
            Self::Unknown(_) => 3,
            Self::Input(_) | Self::Usage(_) | Self::NobodyListens => 2,
        }
    }

    /// A failure to write standard output.
    pub(crate) fn printing(e: &io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::NobodyListens,
            _ => Self::Usage(format!("standard output cannot be written: {e}")),
        }
    }
}

impl InputError {
    /// A fault of the file as a whole.
    pub(crate) fn file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.into(), place: None, message: message.into() }
    }

    /// A fault of a line.
    pub(crate) fn line(file: &str, line: u64, message: impl Into<String>) -> Self {
        Self { file: file.into(), place: Some(Place::Line(line)), message: message.into() }
    }
}

impl From<InputError> for Failure {
    fn from(e: InputError) -> Self {
        Self::Input(e)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(message) | Self::Unknown(message) | Self::Usage(message) => f.write_str(message),
            Self::Input(e) => e.fmt(f),
            Self::NobodyListens => f.write_str("standard output is closed"),
        }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, message } = self;
        let file = if file == "-" { "standard input" } else { file };
        match place {
            None => write!(f, "{file}: {message}"),
            Some(Place::Line(line)) => write!(f, "{file}:{line}: {message}"),
            Some(Place::Column(line, column)) => write!(f, "{file}:{line}:{column}: {message}"),
            Some(Place::Byte(byte)) => write!(f, "{file}: byte {byte}: {message}"),
        }
    }
}
