//! The header of NumPy's `.npy` format.
//!
//! A file may be hostile or damaged: no header makes the reader panic, nest calls, or allocate more
//! than [`MOST_HEADER_BYTES`].

use std::io::{self, Read};

use reduce_kernels::ElementType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The largest header in bytes. A larger one is damaged: those of the supported types take a few
/// hundred bytes.
const MOST_HEADER_BYTES: u64 = 1 << 20;

/// Most axes of an array in NumPy.
const MOST_AXES: usize = 64;

/// The header's size, with what precedes it, is a multiple of this.
const ALIGNMENT: usize = 64;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The element type in NumPy's notation, such as `'<f4'`.
    pub descr: String,
    /// Whether the first axis is the innermost.
    pub fortran_order: bool,
    /// Extents.
    pub shape: Vec<u64>,
    /// Where the elements start in the file.
    pub data_start: u64,
}

/// Why a header could not be read.
#[derive(Debug)]
pub(crate) enum HeaderError {
    /// The file system reported an error.
    Io(io::Error),
    /// The bytes are not a header.
    Malformed(String),
}

impl From<io::Error> for HeaderError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn malformed<T>(reason: impl Into<String>) -> Result<T, HeaderError> {
    Err(HeaderError::Malformed(reason.into()))
}

impl Header {
    /// Reads the header of a file of `file_bytes` bytes, and leaves `reader` where the elements
    /// start.
    ///
    /// # Errors
    ///
    /// The file ends too early, or begins with something else.
    pub(crate) fn read(mut reader: impl Read, file_bytes: u64) -> Result<Self, HeaderError> {
        const PREFIX: usize = MAGIC.len() + 2;
        if file_bytes < PREFIX as u64 {
            return malformed(format!("the file has {file_bytes} bytes"));
        }
        let mut prefix = [0; PREFIX];
        reader.read_exact(&mut prefix)?;
        let Some(&[major, minor]) = prefix.strip_prefix(MAGIC) else {
            return malformed("it does not begin with \\x93NUMPY");
        };
        let length_bytes = match (major, minor) {
            (1, 0) => 2,
            (2 | 3, 0) => 4,
            _ => return malformed(format!("version {major}.{minor} of the format is unknown")),
        };
        let text_start = (PREFIX + length_bytes) as u64;
        if file_bytes < text_start {
            return malformed(format!("the file has {file_bytes} bytes"));
        }
        let mut length = [0; 4];
        reader.read_exact(&mut length[..length_bytes])?;
        let length = u64::from(u32::from_le_bytes(length));
        let data_start = text_start + length;
        // This check comes before any allocation, because a damaged file can state any length.
        if data_start > file_bytes || length > MOST_HEADER_BYTES {
            return malformed(format!(
                "it announces a header of {length} bytes, {} follow",
                file_bytes - text_start
            ));
        }
        let mut text = vec![0; length as usize];
        reader.read_exact(&mut text)?;
        let (descr, fortran_order, shape) = parse(&text).or_else(malformed)?;
        Ok(Self { descr, fortran_order, shape, data_start })
    }

    /// The bytes in front of the elements of a row-major array, in the byte order of this machine.
    ///
    /// # Errors
    ///
    /// The header would be too long.
    pub(crate) fn write(element: ElementType, shape: &[usize]) -> io::Result<Vec<u8>> {
        let order = match element.bytes() {
            1 => '|',
            _ if cfg!(target_endian = "big") => '>',
            _ => '<',
        };
        let kind = KINDS.iter().find(|(_, known)| *known == element);
        let Some((kind, _)) = kind else { return Err(io::ErrorKind::Unsupported.into()) };
        let extents: String = shape.iter().map(|extent| format!("{extent},")).collect();
        let mut text =
            format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({extents}), }}");
        let prefix = MAGIC.len() + 4;
        let padding = (prefix + text.len() + 1).next_multiple_of(ALIGNMENT) - prefix - 1;
        text = format!("{text:padding$}\n");
        let length =
            u16::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok([MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat())
    }

    /// The type of the elements, if it can be reduced, and whether their bytes must be swapped for
    /// this machine.
    pub(crate) fn element(&self) -> Option<(ElementType, bool)> {
        let descr = self.descr.trim_matches(['\'', '"']);
        let (order, kind) = descr.split_at_checked(1)?;
        let &(_, element) = KINDS.iter().find(|(known, _)| *known == kind)?;
        let swapped = match order {
            "<" => cfg!(target_endian = "big"),
            ">" => cfg!(target_endian = "little"),
            "=" => false,
            "|" if element.bytes() == 1 => false,
            _ => return None,
        };
        Some((element, swapped))
    }
}

/// NumPy's kinds and sizes of the types that can be reduced.
const KINDS: [(&str, ElementType); 12] = [
    ("f2", ElementType::F16),
    ("f4", ElementType::F32),
    ("f8", ElementType::F64),
    ("i1", ElementType::I8),
    ("i2", ElementType::I16),
    ("i4", ElementType::I32),
    ("i8", ElementType::I64),
    ("u1", ElementType::U8),
    ("u2", ElementType::U16),
    ("u4", ElementType::U32),
    ("u8", ElementType::U64),
    ("b1", ElementType::Bool),
];

/// Type, order and shape from a dictionary in Python's notation, such as
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse(text: &[u8]) -> Result<(String, bool, Vec<u64>), String> {
    let mut text = Text { bytes: text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    text.expect(b'{')?;
    while !text.eat(b'}') {
        let key = text.string()?;
        text.expect(b':')?;
        let again = match key {
            b"descr" => descr.replace(text.value()?).is_some(),
            b"fortran_order" => fortran_order.replace(text.truth()?).is_some(),
            b"shape" => shape.replace(text.extents()?).is_some(),
            _ => return Err(text.wrong("descr, fortran_order or shape")),
        };
        if again {
            return Err(text.wrong("each key once"));
        }
        if !text.eat(b',') {
            text.expect(b'}')?;
            break;
        }
    }
    if text.peek().is_some() {
        return Err(text.wrong("its end"));
    }
    let descr = descr.ok_or("the header has no descr")?;
    let fortran_order = fortran_order.ok_or("the header has no fortran_order")?;
    let shape = shape.ok_or("the header has no shape")?;
    Ok((descr, fortran_order, shape))
}

/// Text of a header, and how far it has been read.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn wrong(&self, expected: &str) -> String {
        format!("the header is damaged: expected {expected} at its byte {}", self.at)
    }

    /// The next byte that is not a blank.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Skips `byte` if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.eat(byte) { Ok(()) } else { Err(self.wrong(&format!("`{}`", char::from(byte)))) }
    }

    /// The content of a quoted string, with its escapes.
    fn string(&mut self) -> Result<&'a [u8], String> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.wrong("a string")),
        };
        let start = self.at + 1;
        self.at = start;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                _ if byte == quote => {
                    self.at += 1;
                    return Ok(&self.bytes[start..self.at - 1]);
                }
                _ => self.at += 1,
            }
        }
        Err(self.wrong("a quote"))
    }

    /// The text of a value of any kind, up to the comma or bracket behind it.
    fn value(&mut self) -> Result<String, String> {
        let first = self.peek();
        let start = self.at;
        if matches!(first, Some(b'\'' | b'"')) {
            self.string()?;
        } else {
            let mut depth = 0usize;
            loop {
                match self.peek() {
                    Some(b'[' | b'(' | b'{') => depth += 1,
                    Some(b',' | b']' | b')' | b'}') if depth == 0 => break,
                    Some(b']' | b')' | b'}') => depth -= 1,
                    Some(b'\'' | b'"') => {
                        self.string()?;
                        continue;
                    }
                    Some(_) => {}
                    None => return Err(self.wrong("the end of a value")),
                }
                self.at += 1;
            }
        }
        if self.at == start {
            return Err(self.wrong("a value"));
        }
        Ok(String::from_utf8_lossy(&self.bytes[start..self.at]).trim_end().to_owned())
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.peek();
        let (word, truth) = match self.bytes[self.at..] {
            [b'T', ..] => ("True", true),
            _ => ("False", false),
        };
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("True or False"));
        }
        self.at += word.len();
        Ok(truth)
    }

    /// A tuple of extents. A tuple of one extent has a comma after it.
    fn extents(&mut self) -> Result<Vec<u64>, String> {
        let mut extents = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            if extents.len() == MOST_AXES {
                return Err(self.wrong(&format!("at most {MOST_AXES} extents")));
            }
            extents.push(self.extent()?);
            if !self.eat(b',') {
                if extents.len() == 1 {
                    return Err(self.wrong("`,`"));
                }
                self.expect(b')')?;
                break;
            }
        }
        Ok(extents)
    }

    fn extent(&mut self) -> Result<u64, String> {
        self.peek();
        let rest = &self.bytes[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| self.wrong("an extent below 2^64"))?;
        self.at += digits;
        Ok(number)
    }
}
