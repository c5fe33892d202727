//! Arrays in NumPy's `.npy` format.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use half::f16;
use npyz::{DType, NpyFile, Order, TypeChar, WriterBuilder};
use reduce_kernels::{ElementType, planner::row_major_strides};

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
        "{path}: elements of type {found} cannot be reduced: supported are f16, f32, f64, i32 and u32"
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
    /// Reads a file.
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
        fn bytes<T: npyz::Deserialize + bytemuck::Pod>(
            npy: NpyFile<BufReader<File>>,
        ) -> io::Result<Vec<u8>> {
            Ok(bytemuck::cast_slice(&npy.into_vec::<T>()?).to_vec())
        }
        let shape_in_file = npy.shape().to_vec();
        let read = match element {
            ElementType::F16 => bytes::<f16>(npy),
            ElementType::F32 => bytes::<f32>(npy),
            ElementType::F64 => bytes::<f64>(npy),
            ElementType::I32 => bytes::<i32>(npy),
            ElementType::U32 => bytes::<u32>(npy),
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
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let io_error = |source| ArrayError::Io { path: path.into(), source };
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io_error)?;
        let writer = BufWriter::new(file.as_file_mut());
        match self.element {
            ElementType::F16 => self.write_elements::<f16>(writer),
            ElementType::F32 => self.write_elements::<f32>(writer),
            ElementType::F64 => self.write_elements::<f64>(writer),
            ElementType::I32 => self.write_elements::<i32>(writer),
            ElementType::U32 => self.write_elements::<u32>(writer),
            element @ ElementType::BF16 => {
                return Err(ArrayError::NotInNumPy { path: path.into(), element });
            }
        }
        .map_err(io_error)?;
        file.persist(path).map_err(|error| io_error(error.error))?;
        Ok(())
    }

    fn write_elements<T>(&self, mut writer: impl Write) -> io::Result<()>
    where
        T: npyz::AutoSerialize + bytemuck::Pod,
    {
        let shape: Vec<u64> = self.shape.iter().map(|&extent| extent as u64).collect();
        let mut npy = npyz::WriteOptions::<T>::new()
            .default_dtype()
            .shape(&shape)
            .writer(&mut writer)
            .begin_nd()?;
        npy.extend(bytemuck::pod_collect_to_vec::<u8, T>(&self.bytes))?;
        npy.finish()?;
        writer.flush()
    }

    /// The elements as f64, which holds each of them exactly, in the order of the bytes.
    pub fn values(&self) -> Vec<f64> {
        fn all<T: bytemuck::Pod>(bytes: &[u8], value: impl Fn(T) -> f64) -> Vec<f64> {
            bytemuck::pod_collect_to_vec::<u8, T>(bytes).into_iter().map(value).collect()
        }
        match self.element {
            ElementType::F16 => all(&self.bytes, f16::to_f64),
            ElementType::BF16 => all(&self.bytes, half::bf16::to_f64),
            ElementType::F32 => all(&self.bytes, |value: f32| f64::from(value)),
            ElementType::F64 => all(&self.bytes, |value: f64| value),
            ElementType::I32 => all(&self.bytes, |value: i32| f64::from(value)),
            ElementType::U32 => all(&self.bytes, |value: u32| f64::from(value)),
        }
    }
}

fn element_of(dtype: &DType) -> Option<ElementType> {
    let DType::Plain(plain) = dtype else { return None };
    match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 2) => Some(ElementType::F16),
        (TypeChar::Float, 4) => Some(ElementType::F32),
        (TypeChar::Float, 8) => Some(ElementType::F64),
        (TypeChar::Int, 4) => Some(ElementType::I32),
        (TypeChar::Uint, 4) => Some(ElementType::U32),
        _ => None,
    }
}
