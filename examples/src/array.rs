//! Arrays in NumPy's `.npy` format.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use reduce_kernels::{ElementType, planner::row_major_strides};
use reduce_programs::{FileError, Staged};

use crate::{
    Number,
    npy::{Header, HeaderError},
};

/// The most characters of an unknown element type that a message shows.
const MOST_SHOWN: usize = 60;

/// An array as it lies in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type of the elements.
    pub element: ElementType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Strides in elements: row-major, or the reverse of it for files in Fortran order.
    pub strides: Vec<usize>,
    /// The elements' bytes, in this machine's byte order.
    pub bytes: Vec<u8>,
}

/// Why an array could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// The file system reported an error.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file does not begin like an array.
    #[error("{path}: not a NumPy array: {reason}")]
    NotAnArray {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file is shorter than its header says.
    #[error(
        "{path}: truncated: shape {shape:?} of {element} needs {needed} bytes of data, the file has {found} bytes in all"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Shape in the header.
        shape: Vec<usize>,
        /// Type in the header.
        element: ElementType,
        /// Bytes that the elements need.
        needed: usize,
        /// Bytes of the file.
        found: u64,
    },
    /// The header describes an array that is larger than any memory.
    #[error("{path}: too large: no memory holds shape {shape:?} of {element}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Shape in the header.
        shape: Vec<u64>,
        /// Type in the header.
        element: ElementType,
    },
    /// Elements of a type that cannot be reduced.
    #[error(
        "{path}: elements of type {found} cannot be reduced: supported are bool, f16, f32, f64 and integers of 8 to 64 bits"
    )]
    ElementType {
        /// The file.
        path: PathBuf,
        /// The type in NumPy's notation.
        found: String,
    },
    /// Results of a type that NumPy's format does not have.
    #[error("{path}: NumPy's format has no {element}")]
    NotInNumPy {
        /// The file.
        path: PathBuf,
        /// The type.
        element: ElementType,
    },
}

impl Array {
    /// Reads a file in either byte order.
    ///
    /// # Errors
    ///
    /// A file that is missing, empty, truncated, damaged, or of another format or element type.
    pub fn read(path: &Path) -> Result<Self, ArrayError> {
        let io_error = |source| FileError::new(path, source);
        let not_an_array = |reason: String| ArrayError::NotAnArray { path: path.into(), reason };
        let file = File::open(path).map_err(io_error)?;
        let file_bytes = file.metadata().map_err(io_error)?.len();
        if file_bytes == 0 {
            return Err(not_an_array("the file is empty".into()));
        }
        Self::read_from(BufReader::new(file), file_bytes, path)
    }

    /// Reads the `file_bytes` bytes of a file, whose name is for messages.
    fn read_from(mut reader: impl Read, file_bytes: u64, path: &Path) -> Result<Self, ArrayError> {
        let io_error = |source| FileError::new(path, source);
        let not_an_array = |reason: String| ArrayError::NotAnArray { path: path.into(), reason };
        let header = Header::read(&mut reader, file_bytes).map_err(|error| match error {
            HeaderError::Io(source) => io_error(source).into(),
            HeaderError::Malformed(reason) => not_an_array(reason),
        })?;
        let Some((element, swapped)) = header.element() else {
            let found = shortened(&header.descr);
            return Err(ArrayError::ElementType { path: path.into(), found });
        };
        // This check comes before any allocation, because a damaged header can state any shape.
        let Some(shape) = addressable(&header.shape, element) else {
            let shape = header.shape;
            return Err(ArrayError::TooLarge { path: path.into(), shape, element });
        };
        let needed = shape.iter().product::<usize>() * element.bytes();
        if needed as u64 > file_bytes - header.data_start {
            return Err(ArrayError::Truncated {
                path: path.into(),
                shape,
                element,
                needed,
                found: file_bytes,
            });
        }
        let mut bytes = vec![0; needed];
        reader.read_exact(&mut bytes).map_err(io_error)?;
        if swapped {
            bytes.chunks_exact_mut(element.bytes()).for_each(<[u8]>::reverse);
        }
        if element == ElementType::Bool
            && let Some(other) = bytes.iter().find(|&&byte| byte > 1)
        {
            return Err(not_an_array(format!("{other} is neither true nor false")));
        }
        let strides = if header.fortran_order {
            let reversed: Vec<usize> = shape.iter().rev().copied().collect();
            row_major_strides(&reversed).into_iter().rev().collect()
        } else {
            row_major_strides(&shape)
        };
        Ok(Self { element, shape, strides, bytes })
    }

    /// Whether the format has a type.
    ///
    /// # Errors
    ///
    /// It has not. `path` is that of the file.
    pub fn check_written(element: ElementType, path: &Path) -> Result<(), ArrayError> {
        match element == ElementType::BF16 || element.is_f8() {
            true => Err(ArrayError::NotInNumPy { path: path.into(), element }),
            false => Ok(()),
        }
    }

    /// Writes a row-major array. The file appears whole or not at all.
    ///
    /// # Errors
    ///
    /// What the file system says, or an element type that the format does not have.
    pub fn write(&self, path: &Path) -> Result<(), ArrayError> {
        Ok(self.stage(path)?.put()?)
    }

    /// Writes a row-major array to a temporary file beside `path`; [`Staged::put`] moves it there.
    /// Several files can be written in this way before the first appears.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub fn stage(&self, path: &Path) -> Result<Staged, ArrayError> {
        Self::check_written(self.element, path)?;
        let header = Header::write(self.element, &self.shape)
            .map_err(|source| FileError::new(path, source))?;
        let mut file = Staged::beside(path)?;
        file.append(&header)?;
        file.append(&self.bytes)?;
        Ok(file)
    }

    /// The elements in the order of the bytes.
    pub fn values(&self) -> Vec<Number> {
        Number::list(self.element, &self.bytes)
    }
}

/// The shape, if its bytes can be addressed. As in NumPy, extents other than zero must multiply to
/// an addressable size even where one extent is zero.
fn addressable(shape: &[u64], element: ElementType) -> Option<Vec<usize>> {
    let mut extents = shape.iter().filter(|&&extent| extent != 0);
    let bytes = extents.try_fold(element.bytes() as u64, |bytes, &n| bytes.checked_mul(n))?;
    isize::try_from(bytes).ok()?;
    shape.iter().map(|&extent| usize::try_from(extent).ok()).collect()
}

/// An unknown element type in one short line.
fn shortened(descr: &str) -> String {
    let words: Vec<&str> = descr.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

    use super::*;

    const HUGE: u64 = i64::MAX as u64;

    /// A file of version 1 of the format, and 64 bytes of data.
    fn file(header: &str) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[1; 64]].concat()
    }

    fn header(descr: &str, order: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
    }

    fn read(bytes: &[u8]) -> Result<Array, ArrayError> {
        Array::read_from(bytes, bytes.len() as u64, Path::new("file"))
    }

    #[test]
    fn headers_are_read_as_numpy_writes_them() {
        let array = read(&file(&header("'<i2'", "True", "(2, 3)"))).unwrap();
        assert_eq!(array.element, ElementType::I16);
        assert_eq!((&array.shape[..], &array.strides[..]), (&[2, 3][..], &[1, 2][..]));
        assert_eq!(array.bytes, [1; 12]);
        let scalar = read(&file("{'shape':(),'fortran_order':False,\"descr\":\"|u1\"}")).unwrap();
        assert_eq!((&scalar.shape[..], scalar.bytes.len()), (&[][..], 1));
        let empty = read(&file(&header("'>f8'", "False", "(3, 0,)"))).unwrap();
        assert_eq!((&empty.shape[..], empty.bytes.len()), (&[3, 0][..], 0));
    }

    /// Extents whose product no integer holds, in either order and beside zeros.
    #[test]
    fn shapes_beyond_any_memory_are_refused() {
        for order in ["True", "False"] {
            for shape in [
                format!("({HUGE}, {HUGE})"),
                format!("(0, {HUGE}, {HUGE})"),
                format!("({HUGE}, {HUGE}, 0)"),
                format!("({}, 4)", u64::MAX),
                format!("({HUGE},)"),
            ] {
                let refused = read(&file(&header("'<f4'", order, &shape))).unwrap_err();
                assert!(matches!(refused, ArrayError::TooLarge { .. }), "{shape}: {refused}");
            }
        }
        let long = read(&file(&header("'<f4'", "False", "(1000000000000,)"))).unwrap_err();
        assert!(matches!(long, ArrayError::Truncated { .. }), "{long}");
    }

    #[test]
    fn damaged_headers_are_refused() {
        let nested = header(&"[".repeat(60_000), "False", "(1,)");
        let many = header("'<f4'", "False", &format!("({})", "1,".repeat(65)));
        for text in [
            header("'<f4'", "False", "(-1,)"),
            header("'<f4'", "False", "('3',)"),
            header("'<f4'", "False", "(3)"),
            header("'<f4'", "False", "(18446744073709551616,)"),
            header("'<f4'", "False", "(1,,)"),
            header("'<f4'", "0", "(1,)"),
            header("'<f4", "False", "(1,)"),
            header("'<f4\\", "False", "(1,)"),
            header("", "False", "(1,)"),
            header("'<f4'", "False", "(1,), 'shape': (1,)"),
            header("'<f4'", "False", "(1,)} {"),
            "{'descr': '<f4', 'shape': (1,)}".into(),
            "{'descr': '<f4', 'fortran_order': False, 'size': (1,)}".into(),
            "{".into(),
            String::new(),
            nested,
            many,
        ] {
            let refused = read(&file(&text)).unwrap_err();
            let shown: String = text.chars().take(80).collect();
            assert!(matches!(refused, ArrayError::NotAnArray { .. }), "{shown}: {refused}");
            assert!(refused.to_string().len() < 200, "{refused}");
        }
        for descr in ["'<f16'", "'|f4'", "'f4'", "''", "'é4'", "[('a', '<f4', (2,))]", "'<U99'"] {
            let refused = read(&file(&header(descr, "False", "(1,)"))).unwrap_err();
            assert!(matches!(refused, ArrayError::ElementType { .. }), "{descr}: {refused}");
        }
        let bools = read(&file(&header("'|b1'", "False", "(64,)")));
        assert!(bools.is_ok());
        let mut bytes = file(&header("'|b1'", "False", "(64,)"));
        *bytes.last_mut().unwrap() = 2;
        assert!(matches!(read(&bytes), Err(ArrayError::NotAnArray { .. })));
    }

    /// Protects that any header gives either an array of that many bytes or an error of this
    /// module.
    #[test]
    fn no_header_makes_the_reader_panic() {
        const PIECES: [&str; 24] = [
            "{",
            "}",
            "(",
            ")",
            "[",
            "]",
            ",",
            ":",
            "'",
            "\"",
            "\\",
            "'descr'",
            "'shape'",
            "'fortran_order'",
            "True",
            "False",
            "'<f4'",
            "'|b1'",
            "0",
            "-1",
            " ",
            "\n",
            "9223372036854775807",
            "99999999999999999999",
        ];
        const EXTENTS: [u64; 9] = [0, 1, 2, 3, 16, 1 << 31, 1 << 32, HUGE, u64::MAX];
        const DESCRS: [&str; 6] = ["'<f4'", "'>i8'", "'|u1'", "'|b1'", "'|S1'", "[('a', '<f4')]"];
        let mut random = StdRng::seed_from_u64(10);
        let mut arrays = 0;
        for round in 0..20_000 {
            let rank = random.random_range(0..5);
            let extents: Vec<String> =
                (0..rank).map(|_| format!("{},", EXTENTS.choose(&mut random).unwrap())).collect();
            let descr = DESCRS.choose(&mut random).unwrap();
            let order = ["True", "False"].choose(&mut random).unwrap();
            let mut text = header(descr, order, &format!("({})", extents.concat()));
            for _ in 0..round % 3 {
                let at = random.random_range(0..=text.len());
                let end = random.random_range(at..=(at + 8).min(text.len()));
                text.replace_range(at..end, PIECES.choose(&mut random).unwrap());
            }
            let mut bytes = file(&text);
            for _ in 0..random.random_range(0..2) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..4 * bytes.len()));
            if let Ok(array) = read(&bytes) {
                let elements: usize = array.shape.iter().product();
                assert_eq!(array.bytes.len(), elements * array.element.bytes(), "{text}");
                arrays += 1;
            }
        }
        assert!(arrays > 1000, "most of these files are refused, not all: {arrays} were read");
    }
}
