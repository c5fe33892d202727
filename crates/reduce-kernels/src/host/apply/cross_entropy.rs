//! The launches of a cross-entropy, without types.

use cubecl::{ir::AddressType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedProblem, AppliedSpec, ElementType, Illegal, InputSpec, OperatorClass, PlanError,
    ProblemError, Role, applied_needs_wide_indices, row_major_strides, span,
};

use super::request::result_strides;
use crate::{
    element::{element_type, memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::{count, merging_types},
        bound::{Bound, output_bytes},
        cache,
        companion::list,
        types::applied_type,
    },
    input::sealed::Layout,
    kernels::{
        args::{ApplicationTypes, KernelTypesArg},
        cross_entropy::{
            ClassArraysLaunch, ClassSpec, SumArraysLaunch, class_gradients, class_losses,
            gather_classes, gradient_factors,
        },
        geometry::{Dim, DimLaunch, DivisorLaunch},
    },
    operator::{InvalidParameter, ParametersLaunch, Signature, rules},
};

/// The name in messages.
const NAME: &str = "cross_entropy";

/// Units of a cube of the launches that have a unit for each slice.
const UNITS: u32 = 128;

/// What becomes of the losses of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LossReduction {
    /// Nothing: there is a loss for each slice.
    #[default]
    Each,
    /// Their sum.
    Sum,
    /// Their sum over the weights of the slices' classes. Without weights, that is the mean over
    /// slices that are not ignored. NaN if all are.
    Mean,
}

/// What is asked for of logits and classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossTask<'a> {
    pub(crate) logits: &'a TensorHandle,
    pub(crate) classes: &'a TensorHandle,
    /// The axis of the classes.
    pub(crate) axis: usize,
    pub(crate) smoothing: f64,
    pub(crate) ignored: Option<i64>,
    pub(crate) weights: Option<&'a TensorHandle>,
    pub(crate) reduction: LossReduction,
    /// The gradient of the losses, or of their sum or mean.
    pub(crate) upstream: Option<&'a TensorHandle>,
}

impl LossTask<'_> {
    /// Whether all classes have a share of each slice.
    pub(crate) fn is_smoothed(&self) -> bool {
        self.smoothing > 0.0
    }
}

/// The classes of slices, and all that launches have in common.
pub(crate) struct Classes<'a> {
    task: LossTask<'a>,
    /// The logits and the gradient by them, with the strides of what lies beside them: losses,
    /// classes, gradients of losses and weights.
    applied: AppliedProblem,
    /// The type of losses and of what is computed.
    pub(crate) real: ElementType,
    input: InputSpec<'a>,
    logits: Bound<'a>,
    classes: (Bound<'a>, ElementType),
    weights: Option<(Bound<'a>, ElementType)>,
    upstream: Option<(Bound<'a>, ElementType)>,
    gradients: Option<Bound<'a>>,
    gradient_stride: usize,
    grid: [u32; 3],
}

/// What the reduction of the logits gives, one of each for each slice.
#[derive(Clone)]
pub(crate) struct Sums {
    /// The largest logit.
    pub(crate) most: TensorHandle,
    /// The logarithm of the sum of exponentials of differences from it, or the reciprocal of that
    /// sum.
    pub(crate) sums: TensorHandle,
    /// The sum of the logits, each times the weight of its class.
    pub(crate) totals: Option<TensorHandle>,
}

impl<'a> Classes<'a> {
    /// Checks everything. `gradient` is the tensor for the gradient by the logits, if it is wanted.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`].
    pub(crate) fn new(
        client: &Client,
        task: &LossTask<'a>,
        gradient: Option<&TensorBinding>,
    ) -> Result<Self, ReduceError> {
        let LossTask { logits, classes, axis, smoothing, .. } = *task;
        let input = logits.spec()?;
        let rank = input.shape.len();
        if axis >= rank {
            return Err(ProblemError::AxisOutOfRange { axis, rank }.into());
        }
        let has_slices = (0..rank).all(|other| other == axis || input.shape[other] > 0);
        if input.shape[axis] == 0 && has_slices {
            let (shape, axes) = (input.shape.to_vec(), vec![axis]);
            return Err(ProblemError::EmptyReduction { operator: NAME, shape, axes }.into());
        }
        if !(0.0..=1.0).contains(&smoothing) {
            let (name, expected) = ("smoothing", "from 0 to 1");
            let invalid = InvalidParameter { name, value: smoothing, expected };
            return Err(ReduceError::parameter(NAME, invalid));
        }
        let class_type = element_type(classes.dtype)?;
        if class_type.is_float() || class_type == ElementType::Bool {
            return Err(Reason::ClassType { found: class_type }.into());
        }
        let class_strides = slice_strides("classes", input.shape, classes, axis)?;
        let upstream_strides = match task.upstream {
            Some(one) if is_one(one) && task.reduction != LossReduction::Each => vec![0; rank],
            Some(each) if task.reduction == LossReduction::Each => {
                slice_strides("gradients of losses", input.shape, each, axis)?
            }
            Some(wrong) => {
                let (found, expected) = (wrong.shape().to_vec(), vec![1]);
                return Err(
                    Reason::SliceShape { what: "gradients of losses", found, expected }.into()
                );
            }
            None => vec![0; rank],
        };
        let gradient_strides = match gradient {
            Some(gradient) if gradient.shape[..] != *input.shape => {
                let (expected, found) = (input.shape.to_vec(), gradient.shape.to_vec());
                return Err(Reason::OutputShape { expected, found }.into());
            }
            Some(gradient) => gradient.strides.to_vec(),
            None => row_major_strides(input.shape),
        };
        let real = applied_type(input.element, None, None);
        let results = result_strides(input.shape, Some(&[axis]));
        let mut weight_strides = vec![0; rank];
        if let Some(weights) = task.weights {
            if weights.shape()[..] != [input.shape[axis]] {
                let (found, expected) = (weights.shape().to_vec(), vec![input.shape[axis]]);
                return Err(
                    Reason::SliceShape { what: "weights of classes", found, expected }.into()
                );
            }
            weight_strides[axis] = weights.strides()[0];
        }
        let gradient_type = gradient_type(input.element);
        let applied = AppliedProblem::new(
            OperatorClass::new(NAME, real.bytes()),
            &input,
            Some(&[axis]),
            &AppliedSpec {
                element: gradient_type,
                strides: Some(&gradient_strides),
                second: None,
                companions: &[&results, &class_strides, &upstream_strides, &weight_strides],
                further: &[],
            },
        )?;
        let device = cache::device(client);
        let bound = |role: Role, tensor: &'a TensorHandle| {
            let element = element_type(tensor.dtype)?;
            if !device.has(element) {
                let device = device.name.clone();
                return Err(PlanError::ElementUnsupported { device, element }.into());
            }
            let span = span(tensor.shape(), tensor.strides()).unwrap_or(usize::MAX);
            let bound = Bound::check_input(client, role, &tensor.handle, span, element)?;
            Ok::<_, ReduceError>((bound, element))
        };
        let outputs = applied.problem().outputs();
        let wanted = (outputs as u64).div_ceil(u64::from(UNITS));
        let grid = device.grid(wanted).ok_or_else(|| PlanError::Unfit {
            plan: "the losses of all classes".into(),
            device: device.name.clone(),
            reason: Illegal::Grid { cubes: wanted, merging: false },
        })?;
        let bindings = bindings(task, gradient.is_some());
        if bindings > device.max_bindings as usize {
            return Err(PlanError::Unfit {
                plan: "the losses of all classes".into(),
                device: device.name.clone(),
                reason: Illegal::Bindings { bindings, available: device.max_bindings },
            }
            .into());
        }
        let gradients = match gradient {
            Some(gradient) => {
                let span = span(input.shape, &gradient_strides).unwrap_or(usize::MAX);
                let buffer = gradient.handle.clone();
                Some(Bound::check(client, Role::Output, buffer, span, gradient_type)?)
            }
            None => None,
        };
        Ok(Self {
            task: *task,
            real,
            logits: bound(Role::Input, logits)?.0,
            input,
            classes: bound(Role::Classes, classes)?,
            weights: task.weights.map(|weights| bound(Role::Operand, weights)).transpose()?,
            upstream: task.upstream.map(|of| bound(Role::Operand, of)).transpose()?,
            gradients,
            gradient_stride: gradient_strides[axis],
            applied,
            grid,
        })
    }

    /// The strides of the gradient along the kept dimensions.
    fn gradient_strides(&self) -> Vec<usize> {
        self.applied.problem().kept().iter().map(|dim| dim.output_stride).collect()
    }

    /// A new tensor for the gradient by the logits.
    ///
    /// # Errors
    ///
    /// It is larger than the device allows.
    pub(crate) fn new_gradient(&self, client: &Client) -> Result<TensorHandle, ReduceError> {
        let (shape, element) = (self.input.shape, gradient_type(self.input.element));
        let strides = row_major_strides(shape);
        let bytes = output_bytes(client, &InputSpec { strides: &strides, element, ..self.input })?;
        let handle = client.empty(bytes);
        Ok(TensorHandle::new_contiguous(shape.to_vec(), handle, storage_type(element)))
    }

    fn slice_count(&self) -> usize {
        self.applied.problem().outputs()
    }

    /// A new tensor with a number for each slice.
    pub(crate) fn slices(&self, client: &Client) -> TensorHandle {
        let mut shape = self.input.shape.to_vec();
        shape.remove(self.task.axis);
        let handle = client.empty(self.slice_count().max(1) * self.real.bytes());
        TensorHandle::new_contiguous(shape, handle, storage_type(self.real))
    }

    /// For each slice, the logit of its class and the weight of that.
    pub(crate) fn gather(&self, client: &Client, gathered: &TensorHandle, weights: &TensorHandle) {
        if self.slice_count() == 0 {
            return;
        }
        // SAFETY: units past the last slice do nothing. Offsets in the logits lie inside their
        // span, because classes that are out of range read the first element of their slice.
        unsafe {
            gather_classes::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(UNITS),
                self.address(),
                self.types(client, self.input.element, self.real),
                self.logits(),
                self.class_arrays(None),
                self.own(gathered),
                self.own(weights),
                self.kept(Lies::AsLogits),
                self.input.strides[self.task.axis],
                self.slice_count(),
                self.spec(false, false),
            );
        }
    }

    /// What the softmax of each slice, and the weights of classes in it, are multiplied by in the
    /// gradient. Both are divided by `divisor` if there is one.
    pub(crate) fn factors(
        &self,
        client: &Client,
        factors: &TensorHandle,
        scales: &TensorHandle,
        divisor: Option<&TensorHandle>,
        class_total: Option<&TensorHandle>,
    ) {
        if self.slice_count() == 0 {
            return;
        }
        // SAFETY: units past the last slice do nothing. Upstream gradients were checked to hold
        // what their strides reach.
        unsafe {
            gradient_factors::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(UNITS),
                self.address(),
                self.types(client, self.real, self.real),
                self.class_arrays(class_total),
                divisor.map(|divisor| one(divisor, self.real)).into(),
                self.upstream.as_ref().map(|(bound, _)| bound.elements()).into(),
                list(&self.applied.companions()[2].kept),
                self.own(factors),
                self.own(scales),
                self.kept(Lies::AsLosses),
                self.parameters(),
                self.slice_count(),
                self.spec(divisor.is_some(), false),
            );
        }
    }

    /// The loss of each slice and its weight. `gathered` are the logits of classes, if these were
    /// gathered before.
    pub(crate) fn losses_of(
        &self,
        client: &Client,
        sums: &Sums,
        class_total: Option<&TensorHandle>,
        gathered: Option<&TensorHandle>,
        of_reciprocals: bool,
    ) -> (TensorHandle, TensorHandle) {
        let (losses, weights) = (self.slices(client), self.slices(client));
        if self.slice_count() == 0 {
            return (losses, weights);
        }
        let (logits, element, lies, stride) = match gathered {
            Some(gathered) => (self.own(gathered), self.real, Lies::AsLosses, 0),
            None => {
                let stride = self.input.strides[self.task.axis];
                (self.logits(), self.input.element, Lies::AsLogits, stride)
            }
        };
        // SAFETY: as in `gather`.
        unsafe {
            class_losses::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(UNITS),
                self.address(),
                self.types(client, element, self.real),
                logits,
                self.class_arrays(class_total),
                self.sums(sums),
                self.own(&losses),
                self.own(&weights),
                self.kept(lies),
                self.parameters(),
                stride,
                self.slice_count(),
                self.spec(false, of_reciprocals),
            );
        }
        (losses, weights)
    }

    /// Writes the gradient by the logit of each slice's class.
    pub(crate) fn gradients_of_classes(
        &self,
        client: &Client,
        gathered: &TensorHandle,
        sums: &Sums,
        factors: &TensorHandle,
        scales: &TensorHandle,
    ) {
        let Some(gradients) = self.gradients.as_ref().filter(|_| self.slice_count() > 0) else {
            return;
        };
        // SAFETY: units past the last slice do nothing. Classes that are out of range write the
        // first element of their slice.
        unsafe {
            class_gradients::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(UNITS),
                self.address(),
                self.types(client, self.real, gradient_type(self.input.element)),
                self.own(gathered),
                self.class_arrays(None),
                self.sums(&Sums { totals: None, ..sums.clone() }),
                self.own(factors),
                self.own(scales),
                gradients.elements(),
                list(&self.gradient_strides()),
                self.gradient_stride,
                self.kept(Lies::AsLosses),
                self.parameters(),
                self.slice_count(),
                self.spec(false, true),
            );
        }
    }

    /// What kernels know when they are compiled.
    fn spec(&self, divided: bool, of_reciprocals: bool) -> ClassSpec {
        ClassSpec {
            ignored: self.task.ignored.filter(|&class| holds(self.classes.1, class)),
            weighted: self.weights.is_some(),
            smoothed: self.task.is_smoothed(),
            of_reciprocals,
            divided,
            upstream: self.upstream.is_some(),
        }
    }

    /// The share of the class that is right, and of each class by smoothing.
    fn parameters(&self) -> ParametersLaunch {
        let LossTask { smoothing, axis, .. } = self.task;
        let each = smoothing / self.input.shape[axis] as f64;
        ParametersLaunch::of(&[1.0 - smoothing, each], storage_type(self.real))
    }

    fn address(&self) -> AddressType {
        match applied_needs_wide_indices(&self.applied) {
            true => AddressType::U64,
            false => AddressType::U32,
        }
    }

    /// A tensor of [`slices`](Self::slices).
    fn own(&self, tensor: &TensorHandle) -> BufferArg {
        let binding = tensor.handle.clone().binding();
        Bound::own(binding, self.slice_count(), self.real.bytes()).elements()
    }

    fn logits(&self) -> BufferArg {
        self.logits.elements()
    }

    fn class_arrays(&self, total: Option<&TensorHandle>) -> ClassArraysLaunch {
        ClassArraysLaunch::new(
            self.classes.0.elements(),
            self.weights.as_ref().map(|(bound, _)| bound.elements()).into(),
            total.map(|total| one(total, self.real)).into(),
            list(&self.applied.companions()[1].kept),
            self.task.weights.map_or(0, |weights| weights.strides()[0]),
            u32::try_from(self.input.shape[self.task.axis]).unwrap_or(u32::MAX),
        )
    }

    fn sums(&self, sums: &Sums) -> SumArraysLaunch {
        let totals = sums.totals.as_ref().map(|totals| self.own(totals));
        SumArraysLaunch::new(self.own(&sums.most), self.own(&sums.sums), totals.into())
    }

    /// The dimensions of slices, with strides in the logits or in what has an element for each
    /// slice.
    fn kept(&self, lies: Lies) -> SequenceArg<Dim> {
        let mut kept = SequenceArg::new();
        let targets = &self.applied.companions()[0].kept;
        for (dim, &target) in self.applied.problem().kept().iter().zip(targets) {
            let stride = match lies {
                Lies::AsLogits => dim.stride,
                Lies::AsLosses => target,
            };
            kept.push(DimLaunch::new(DivisorLaunch::of(dim.extent), stride, target));
        }
        kept
    }

    /// The types of a launch that reads elements of type `stored` and may write some of type
    /// `applied`.
    fn types(&self, client: &Client, stored: ElementType, applied: ElementType) -> KernelTypesArg {
        let real = memory_type(self.real);
        let or_real = |of: &Option<(Bound<'_>, ElementType)>| {
            of.as_ref().map_or(real, |&(_, element)| memory_type(element))
        };
        let operands =
            [memory_type(self.classes.1), or_real(&self.weights), or_real(&self.upstream)];
        KernelTypesArg {
            stored: memory_type(stored),
            application: Some(ApplicationTypes {
                real,
                outputs: [memory_type(applied); 3],
                operands,
            }),
            ..merging_types(client, &Signature::one(self.real, self.real, self.real))
        }
    }
}

/// The most buffers that a launch of its own binds.
fn bindings(task: &LossTask<'_>, with_gradient: bool) -> usize {
    let weighted = usize::from(task.weights.is_some());
    let smoothed = usize::from(task.is_smoothed());
    let losses = 6 + weighted + smoothed + weighted * smoothed;
    let (reduced, upstream) = (task.reduction == LossReduction::Mean, task.upstream.is_some());
    let factors = 3 + weighted + weighted * smoothed + usize::from(reduced) + usize::from(upstream);
    let gradients = 7 + weighted;
    if with_gradient { losses.max(factors).max(gradients) } else { losses }
}

/// Where the first of two strides of each dimension leads.
#[derive(Clone, Copy)]
enum Lies {
    AsLogits,
    AsLosses,
}

fn is_one(tensor: &TensorHandle) -> bool {
    tensor.shape().iter().all(|&extent| extent == 1)
}

/// A tensor of one element of this crate's own.
fn one(tensor: &TensorHandle, element: ElementType) -> BufferArg {
    Bound::own(tensor.handle.clone().binding(), 1, element.bytes()).elements()
}

/// The type of gradients by logits of a type.
fn gradient_type(logits: ElementType) -> ElementType {
    rules::computed(logits, applied_type(logits, None, None))
}

/// Whether an integer type has this number.
fn holds(element: ElementType, number: i64) -> bool {
    let bits = 8 * element.bytes() as u32;
    match element.is_signed() {
        true => bits == 64 || (-(1 << (bits - 1))..1 << (bits - 1)).contains(&number),
        false => number >= 0 && (bits == 64 || number < 1 << bits),
    }
}

/// The strides along the axes of the logits of a tensor with an element for each slice, 0 along
/// that of the classes. Its shape lacks this axis, or has it with size 1.
fn slice_strides(
    what: &'static str,
    shape: &[usize],
    tensor: &TensorHandle,
    axis: usize,
) -> Result<Vec<usize>, ReduceError> {
    let mut without = shape.to_vec();
    without.remove(axis);
    let mut with_one = shape.to_vec();
    with_one[axis] = 1;
    let found = tensor.shape();
    let mut strides = tensor.strides().to_vec();
    if found[..] == without[..] {
        strides.insert(axis, 0);
    } else if found[..] == with_one[..] {
        strides[axis] = 0;
    } else {
        return Err(Reason::SliceShape { what, found: found.to_vec(), expected: without }.into());
    }
    Ok(strides)
}
