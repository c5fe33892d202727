//! The launches beside those of the selection itself: the reduction before it that probabilities
//! over slices need, and the launch after it that writes a mask.

use super::plan::{TopKMethod, TopKPlan};
use crate::{
    choose::{Choice, choose},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    plan::Plan,
    problem::{Problem, TopKProblem},
};

impl TopKPlan {
    /// The reduction that is launched before the selection. There is one for probabilities over
    /// slices, unless units hold these and find the sums themselves.
    #[must_use]
    pub fn sums_before<'p>(&self, problem: &'p TopKProblem) -> Option<&'p Problem> {
        problem.sums().filter(|_| self.method != TopKMethod::Registers)
    }

    /// Number of launches of the whole call: those of a [reduction before](Self::sums_before), those
    /// of the [selection](Self::launch_count), and the one after it that writes a mask.
    ///
    /// # Errors
    ///
    /// The device cannot run the reduction.
    pub fn whole_launch_count(
        &self,
        problem: &TopKProblem,
        device: &Device,
    ) -> Result<u32, PlanError> {
        let before = self.plan_before(problem, device)?;
        let before = before.map_or(0, |Choice { plan, .. }| plan.schedule.launches());
        Ok(before + self.launch_count() + u32::from(problem.is_masked()))
    }

    /// What all launches should take. The selection alone takes [`estimate`](Self::estimate).
    ///
    /// # Errors
    ///
    /// The device cannot run the reduction before the selection.
    pub fn whole_estimate(
        &self,
        problem: &TopKProblem,
        device: &Device,
    ) -> Result<Estimate, PlanError> {
        let selection = self.estimate(problem, device);
        let before = self.plan_before(problem, device)?;
        let so_far = before.map_or(selection, |before| before.estimate.then(&selection));
        if !problem.is_masked() {
            return Ok(so_far);
        }
        // The estimate of the selection has the bytes of the problem, so those that the mask writes.
        // It reads the input once more.
        let profile = &device.profile;
        let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9;
        let mask = Estimate::streamed(
            profile.launch_ns as f64,
            profile.gap_ns as f64,
            profile.latency_ns as f64,
            problem.bytes_of_input() as f64 / bandwidth,
            1.0,
        );
        Ok(so_far.then(&mask))
    }

    /// One line about all launches: the sentence of the plan, which is that of the selection, behind
    /// that of a reduction before it, and before the launch that writes a mask. Where there is
    /// neither, it is the sentence of the plan.
    ///
    /// ```
    /// # use reduce_planner::{
    /// #     Device, ElementType, InputSpec, Planned, SelectedSpec, TopKProblem,
    /// # };
    /// # let input = InputSpec {
    /// #     element: ElementType::F32,
    /// #     shape: &[512, 128256],
    /// #     strides: &[128256, 1],
    /// #     alignment: 256,
    /// # };
    /// # let selected = SelectedSpec {
    /// #     positions: ElementType::U32,
    /// #     kept_strides: &[50],
    /// #     rank_stride: 1,
    /// #     written: None,
    /// #     probabilities: None,
    /// # };
    /// // The 50 largest of each row, and nothing else of the input.
    /// let mask = TopKProblem::new(&input, Some(&[1]), 50, &selected)?.masked();
    /// let device = Device::h200();
    /// let plan = mask.choose(&device)?.plan;
    /// assert!(plan.to_string().starts_with("top_k: 1 launch, "));
    /// assert!(plan.whole_sentence(&mask, &device)?.starts_with("2 launches: top_k: 1 launch, "));
    /// assert_eq!(plan.whole_launch_count(&mask, &device)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The device cannot run the reduction.
    pub fn whole_sentence(
        &self,
        problem: &TopKProblem,
        device: &Device,
    ) -> Result<String, PlanError> {
        let before = self.plan_before(problem, device)?;
        if before.is_none() && !problem.is_masked() {
            return Ok(self.to_string());
        }
        let mut sentence = format!("{} launches: ", self.whole_launch_count(problem, device)?);
        if let Some(Choice { plan, .. }) = before {
            sentence += &format!("{plan}, for the sums of exponentials; then ");
        }
        sentence += &self.to_string();
        if problem.is_masked() {
            sentence += "; then a launch that compares each element with the last selected one";
        }
        Ok(sentence)
    }

    /// The plan of the reduction before the selection.
    fn plan_before(
        &self,
        problem: &TopKProblem,
        device: &Device,
    ) -> Result<Option<Choice<Plan>>, PlanError> {
        self.sums_before(problem).map(|sums| choose(sums, device)).transpose()
    }
}
