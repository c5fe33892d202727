//! The reductions that the programs compare: Burn's own and those of reduce-burn.

use std::fmt;

use burn_tensor::{Int, Tensor, activation};
use clap::ValueEnum;
use reduce_burn::squeeze;
use serde::Serialize;

/// Whose reductions a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Those of Burn.
    Burn,
    /// Those of reduce-burn.
    Ours,
    /// Both, one beside the other.
    Both,
}

impl Choice {
    /// What runs, in the order of reports.
    pub fn reductions(self) -> &'static [Reductions] {
        match self {
            Choice::Burn => &[Reductions::Burn],
            Choice::Ours => &[Reductions::Ours],
            Choice::Both => &[Reductions::Burn, Reductions::Ours],
        }
    }
}

/// One library's reductions. Both have the same results, up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reductions {
    /// What Burn 0.22 and its modules do.
    Burn,
    /// The functions of reduce-burn.
    Ours,
}

impl fmt::Display for Reductions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reductions::Burn => "Burn",
            Reductions::Ours => "reduce-burn",
        })
    }
}

impl Reductions {
    /// The mean and the variance of each channel of `[batch, channels, height, width]`, both of
    /// shape `[1, channels, 1, 1]`.
    ///
    /// Burn's are those of its `BatchNorm`: a mean of the transposed images, and then a mean of
    /// squared deviations.
    pub fn channel_moments(self, x: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        if self == Reductions::Ours {
            return reduce_burn::mean_var(x, [0, 2, 3], 0.0);
        }
        let [batch, channels, height, width] = x.dims();
        let channel_mean = |x: Tensor<4>| {
            let rows = x.swap_dims(0, 1).reshape([channels, batch * height * width]);
            rows.mean_dim(1).reshape([1, channels, 1, 1])
        };
        let mean = channel_mean(x.clone());
        let var = channel_mean((x - mean.clone()).square());
        (mean, var)
    }

    /// The weights of attention: the softmax over the last axis of scores times `scale`, plus
    /// `mask`, which broadcasts to the scores.
    pub fn attention<const D: usize>(
        self,
        scores: Tensor<D>,
        scale: f64,
        mask: Tensor<D>,
    ) -> Tensor<D> {
        match self {
            Reductions::Ours => reduce_burn::pairs::masked_softmax(scores, -1, scale, mask),
            Reductions::Burn => activation::softmax(scores * scale + mask, D - 1),
        }
    }

    /// The cross-entropy of rows of logits and the classes that they should name, averaged over the
    /// rows. Both are modules.
    pub fn cross_entropy(self, logits: Tensor<2>, classes: Tensor<1, Int>) -> Tensor<1> {
        let device = logits.device();
        match self {
            Reductions::Ours => {
                reduce_burn::nn::CrossEntropyLoss::new(None, &device).forward(logits, classes)
            }
            Reductions::Burn => {
                burn_nn::loss::CrossEntropyLoss::new(None, &device).forward(logits, classes)
            }
        }
    }

    /// The position of the maximum over the last axis, which stays with size 1.
    pub fn argmax<const D: usize>(self, x: Tensor<D>) -> Tensor<D, Int> {
        match self {
            Reductions::Ours => reduce_burn::argmax(x, -1),
            Reductions::Burn => x.argmax(D - 1),
        }
    }

    /// The number of rows of logits whose maximum is at the class that they should name.
    pub fn hits(self, logits: Tensor<2>, classes: Tensor<1, Int>) -> Tensor<1, Int> {
        let hits = self.argmax(logits).equal(classes.unsqueeze_dim(1));
        match self {
            Reductions::Ours => reduce_burn::count_nonzero(hits, squeeze(..)),
            Reductions::Burn => hits.int().sum(),
        }
    }

    /// The L2 norm of all elements.
    pub fn norm<const D: usize>(self, x: Tensor<D>) -> Tensor<1> {
        match self {
            Reductions::Ours => reduce_burn::norm_l2(x, squeeze(..)),
            Reductions::Burn => x.square().sum().sqrt(),
        }
    }
}
