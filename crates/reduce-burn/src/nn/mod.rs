//! Modules in place of Burn's, with the feature `nn`: normalisations and a loss that reduce in this
//! crate.
//!
//! They have the names, the fields, the configurations and the methods of those in `burn::nn`. A
//! model takes them with another `use` line, and loads the records and the configurations that it
//! has saved with Burn's. [`RmsNorm`] and [`LayerNorm`] also normalise the sum of a tensor and of a
//! residual, as [`add_rms_norm`](crate::pairs::add_rms_norm) and
//! [`add_layer_norm`](crate::pairs::add_layer_norm).
//!
//! ```
//! use burn_core as burn;
//! use burn_core::module::Module;
//! use burn_nn::Linear;
//! use burn_tensor::Tensor;
//! use reduce_burn::nn::RmsNorm; // in place of burn_nn::RmsNorm
//!
//! #[derive(Module, Debug)]
//! struct Block {
//!     norm: RmsNorm,
//!     linear: Linear,
//! }
//!
//! impl Block {
//!     fn forward(&self, x: Tensor<3>) -> Tensor<3> {
//!         self.linear.forward(self.norm.forward(x))
//!     }
//! }
//! ```
//!
//! Results are computed in f32 at least, in f64 of f64, and rounded once, also where Burn's modules
//! round between their operations.

pub mod loss;
mod norm;

pub use loss::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use norm::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
