//! Arrays in NumPy's `.npy` format.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use half::f16;
use npyz::{DType, NpyFile, Order, TypeChar, WriterBuilder};
use reduce_kernels::{ElementType, planner::row_major_strides};
use tempfile::NamedTempFile;

use crate::Number;

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
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
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
        shape: Vec<u64>,
        /// Type in the header.
        element: ElementType,
        /// Bytes that the elements need.
        needed: u128,
        /// Bytes of the file.
        found: u64,
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
    /// A file that is missing, empty, truncated, or of another format or element type.
    pub fn read(path: &Path) -> Result<Self, ArrayError> {
        let io_error = |source| ArrayError::Io { path: path.into(), source };
        let not_an_array = |reason: String| ArrayError::NotAnArray { path: path.into(), reason };
        let file = File::open(path).map_err(io_error)?;
        let found = file.metadata().map_err(io_error)?.len();
        if found == 0 {
            return Err(not_an_array("the file is empty".into()));
        }
        let npy = NpyFile::new(BufReader::new(file))
            .map_err(|error| not_an_array(error.to_string().replace('\n', " ")))?;
        let element = element_of(&npy.dtype()).ok_or_else(|| ArrayError::ElementType {
            path: path.into(),
            found: npy.dtype().descr(),
        })?;
        // Before anything is allocated for a shape that a damaged header made up.
        let elements = npy
            .shape()
            .iter()
            .map(|&extent| u128::from(extent))
            .try_fold(1u128, |product, extent| product.checked_mul(extent));
        let needed = elements.and_then(|count| count.checked_mul(element.bytes() as u128));
        if needed.is_none_or(|needed| needed > u128::from(found)) {
            return Err(ArrayError::Truncated {
                path: path.into(),
                shape: npy.shape().to_vec(),
                element,
                needed: needed.unwrap_or(u128::MAX),
                found,
            });
        }
        let shape: Vec<usize> = npy.shape().iter().map(|&extent| extent as usize).collect();
        let strides = match npy.order() {
            Order::C => row_major_strides(&shape),
            Order::Fortran => {
                let reversed: Vec<usize> = shape.iter().rev().copied().collect();
                row_major_strides(&reversed).into_iter().rev().collect()
            }
        };
        fn bytes<T: npyz::Deserialize + bytemuck::NoUninit>(
            npy: NpyFile<BufReader<File>>,
        ) -> io::Result<Vec<u8>> {
            Ok(bytemuck::cast_slice(&npy.into_vec::<T>()?).to_vec())
        }
        let shape_in_file = npy.shape().to_vec();
        let read = match element {
            ElementType::F16 => bytes::<f16>(npy),
            ElementType::F32 => bytes::<f32>(npy),
            ElementType::F64 => bytes::<f64>(npy),
            ElementType::I8 => bytes::<i8>(npy),
            ElementType::I16 => bytes::<i16>(npy),
            ElementType::I32 => bytes::<i32>(npy),
            ElementType::I64 => bytes::<i64>(npy),
            ElementType::U8 => bytes::<u8>(npy),
            ElementType::U16 => bytes::<u16>(npy),
            ElementType::U32 => bytes::<u32>(npy),
            ElementType::U64 => bytes::<u64>(npy),
            ElementType::Bool => bytes::<bool>(npy),
            ElementType::BF16 => Err(io::ErrorKind::Unsupported.into()),
        };
        let bytes = read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => ArrayError::Truncated {
                path: path.into(),
                shape: shape_in_file,
                element,
                needed: needed.unwrap_or(u128::MAX),
                found,
            },
            _ => io_error(source),
        })?;
        Ok(Self { element, shape, strides, bytes })
    }

    /// Writes a row-major array. The file appears whole or not at all.
    ///
    /// # Errors
    ///
    /// What the file system says, or an element type that the format does not have.
    pub fn write(&self, path: &Path) -> Result<(), ArrayError> {
        self.stage(path)?.persist()
    }

    /// Writes a row-major array beside `path`, for [`Staged::persist`] to put it there: several
    /// files can so be written before the first appears.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn stage(&self, path: &Path) -> Result<Staged, ArrayError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let io_error = |source| ArrayError::Io { path: path.into(), source };
        if path.is_dir() {
            return Err(io_error(io::ErrorKind::IsADirectory.into()));
        }
        let mut file = NamedTempFile::new_in(folder).map_err(io_error)?;
        let writer = BufWriter::new(file.as_file_mut());
        match self.element {
            ElementType::F16 => self.write_pod::<f16>(writer),
            ElementType::F32 => self.write_pod::<f32>(writer),
            ElementType::F64 => self.write_pod::<f64>(writer),
            ElementType::I8 => self.write_pod::<i8>(writer),
            ElementType::I16 => self.write_pod::<i16>(writer),
            ElementType::I32 => self.write_pod::<i32>(writer),
            ElementType::I64 => self.write_pod::<i64>(writer),
            ElementType::U8 => self.write_pod::<u8>(writer),
            ElementType::U16 => self.write_pod::<u16>(writer),
            ElementType::U32 => self.write_pod::<u32>(writer),
            ElementType::U64 => self.write_pod::<u64>(writer),
            ElementType::Bool => {
                self.write_elements::<bool>(writer, self.bytes.iter().map(|&byte| byte != 0))
            }
            element @ ElementType::BF16 => {
                return Err(ArrayError::NotInNumPy { path: path.into(), element });
            }
        }
        .map_err(io_error)?;
        Ok(Staged { file, path: path.into() })
    }

    fn write_pod<T>(&self, writer: impl Write) -> io::Result<()>
    where
        T: npyz::AutoSerialize + bytemuck::Pod,
    {
        self.write_elements::<T>(writer, bytemuck::pod_collect_to_vec::<u8, T>(&self.bytes))
    }

    fn write_elements<T: npyz::AutoSerialize>(
        &self,
        mut writer: impl Write,
        elements: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        let shape: Vec<u64> = self.shape.iter().map(|&extent| extent as u64).collect();
        let mut npy = npyz::WriteOptions::<T>::new()
            .default_dtype()
            .shape(&shape)
            .writer(&mut writer)
            .begin_nd()?;
        npy.extend(elements)?;
        npy.finish()?;
        writer.flush()
    }

    /// The elements in the order of the bytes.
    pub fn values(&self) -> Vec<Number> {
        Number::list(self.element, &self.bytes)
    }
}

/// An array in a temporary file, which goes away unless it is put in its place.
#[derive(Debug)]
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn persist(self) -> Result<(), ArrayError> {
        let Self { file, path } = self;
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(ArrayError::Io { path, source: error.error }),
        }
    }
}

fn element_of(dtype: &DType) -> Option<ElementType> {
    let DType::Plain(plain) = dtype else { return None };
    match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 2) => Some(ElementType::F16),
        (TypeChar::Float, 4) => Some(ElementType::F32),
        (TypeChar::Float, 8) => Some(ElementType::F64),
        (TypeChar::Int, 1) => Some(ElementType::I8),
        (TypeChar::Int, 2) => Some(ElementType::I16),
        (TypeChar::Int, 4) => Some(ElementType::I32),
        (TypeChar::Int, 8) => Some(ElementType::I64),
        (TypeChar::Uint, 1) => Some(ElementType::U8),
        (TypeChar::Uint, 2) => Some(ElementType::U16),
        (TypeChar::Uint, 4) => Some(ElementType::U32),
        (TypeChar::Uint, 8) => Some(ElementType::U64),
        (TypeChar::Bool, 1) => Some(ElementType::Bool),
        _ => None,
    }
}
