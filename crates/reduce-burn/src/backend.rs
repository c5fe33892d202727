//! The trait of backends that can reduce.

use burn_backend::{
    Backend,
    tensor::{Device, FloatTensor},
};

use crate::{
    AnyTensor, Application, Clipped, Clipping, PairReduction, ReduceBurnError, Reduction,
    application, clip, composed, pair,
};

/// The results of a reduction, in the order of [`Reduction::outputs`] or
/// [`PairReduction::outputs`].
pub type Results<B> = Vec<AnyTensor<B>>;

/// The result of an application, and the statistics of its slices.
pub type WithStatistics<B> = (FloatTensor<B>, Vec<FloatTensor<B>>);

/// A backend whose tensors this crate's functions take.
///
/// It is implemented for `CubeBackend` with the kernels of reduce-kernels, for `Fusion` and
/// `Autodiff` of every backend that has it, and for `Flex` with the feature `flex`. Any other
/// backend takes an empty implementation in its own crate: the bodies here are made of Burn's own
/// operations.
pub trait ReduceBackend: Backend {
    /// A device as the planner of reduce-kernels sees it: what a store of plans or a profile is
    /// read with. `None` where reductions are made of Burn's operations, which no plan is for.
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        let _ = device;
        None
    }

    /// Takes the plans of all reductions on a device from `plans`, in every thread, where it has
    /// one; see [`use_plans`](reduce_kernels::use_plans). Where
    /// [`planner_device`](Self::planner_device) is `None`, nothing changes.
    ///
    /// ```no_run
    /// # use burn_tensor::{backend::Backend};
    /// use reduce_burn::{ReduceBackend, reduce_kernels::{PlanStore, StoreError}};
    ///
    /// fn start<B: ReduceBackend>(device: &B::Device) -> Result<(), StoreError> {
    ///     let Some(planned_for) = B::planner_device(device) else { return Ok(()) };
    ///     B::use_plans(device, PlanStore::read("plans.json", &planned_for)?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The plans are those of another device.
    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::PlanStore,
    ) -> Result<(), reduce_kernels::StoreError> {
        let _ = (device, plans);
        Ok(())
    }

    /// Whether [`reduce`](Self::reduce) would run a reduction on a device.
    ///
    /// `Fusion` asks this when it records a reduction, because it runs on the device's thread
    /// later, where an error could not reach the caller.
    ///
    /// # Errors
    ///
    /// The error that `reduce` would return.
    fn check(reduction: &Reduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let _ = (reduction, device);
        Ok(())
    }

    /// Reduces a tensor. The results have the shape and the types that `reduction` says. Does not
    /// wait for the device.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn reduce(
        tensor: AnyTensor<Self>,
        reduction: &Reduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        Ok(composed::reduce(tensor, reduction))
    }

    /// Whether [`apply`](Self::apply) would run an application on a device. `Fusion` asks this as
    /// it asks [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// The error that `apply` would return.
    fn check_application(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        let _ = (application, device);
        Ok(())
    }

    /// Whether [`apply_with_statistics`](Self::apply_with_statistics) would run an application on a
    /// device. `Fusion` asks this as it asks [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// The error that `apply_with_statistics` would return.
    fn check_application_with_statistics(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        Self::check_application(application, device)
    }

    /// Applies the results of a reduction to each element of a tensor. The tensor and the operands
    /// are those that `application` was made of. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn apply(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<FloatTensor<Self>, ReduceBurnError> {
        application::composed::apply::<Self>(tensor, operands, application)
    }

    /// Like [`apply`](Self::apply), and returns the statistics of the slices that
    /// [`Application::statistics`] describes too, for a backward pass. Those of no elements have no
    /// meaning.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn apply_with_statistics(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<WithStatistics<Self>, ReduceBurnError> {
        let result = Self::apply(tensor.clone(), operands, application)?;
        Ok((result, application::composed::statistics::<Self>(tensor, application)?))
    }

    /// Whether [`reduce_pair`](Self::reduce_pair) would run a reduction of two inputs on a device.
    /// `Fusion` asks this as it asks [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// The error that `reduce_pair` would return.
    fn check_pair(pair: &PairReduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let _ = (pair, device);
        Ok(())
    }

    /// Reduces two tensors, which are those that `pair` was made of. The results have the shape and
    /// the types that it says. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn reduce_pair(
        first: AnyTensor<Self>,
        second: AnyTensor<Self>,
        pair: &PairReduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        pair::composed::reduce(first, second, pair)
    }

    /// Whether [`clip_by_global_norm`](Self::clip_by_global_norm) would clip tensors on a device.
    /// `Fusion` asks this as it asks [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// The error that `clip_by_global_norm` would return.
    fn check_clipping(clipping: &Clipping, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let _ = (clipping, device);
        Ok(())
    }

    /// Scales tensors down together, which are those that `clipping` was made of. Returns them, in
    /// the same shapes and types, and the norm that they had, of shape `[1]`. Does not wait for the
    /// device.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn clip_by_global_norm(
        tensors: Vec<FloatTensor<Self>>,
        clipping: &Clipping,
    ) -> Result<Clipped<Self>, ReduceBurnError> {
        clip::composed::clip_by_global_norm::<Self>(tensors, clipping)
    }
}

#[cfg(feature = "flex")]
impl ReduceBackend for burn_flex::Flex {}
