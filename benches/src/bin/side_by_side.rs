//! Times cases given in the words of the peers' programs, one a line.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use reduce_benches::{Case, inputs, microseconds_per_call};
use reduce_kernels::{
    OperatorOptions, ScheduleKind,
    cubecl::prelude::*,
    device_of,
    planner::{Access, Plan, cost, schedule},
    reduce, with_operator,
};

/// Times reductions over rotating buffers (cold cache) and prints
/// `OURS op dtype [shape] axis A: T us B GB/s`, the format of the peers' programs.
#[derive(Parser)]
struct Arguments {
    /// Cases such as `sum f32 [8192, 8192] axis 1`, or `axis (0, 2, 3)`, `axis all`, `axis T`.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment.
    #[arg(long)]
    file: Option<PathBuf>,
    /// The runtime: cuda or wgpu, as far as compiled in.
    #[arg(long)]
    backend: Option<String>,
    /// Time every schedule that applies, not only the chosen one.
    #[arg(long)]
    every_schedule: bool,
    /// Time this plan too, given as JSON; may be repeated. Cases that it does not fit are left out.
    #[arg(long = "plan")]
    plans: Vec<String>,
}

/// A schedule expected to take this many times the chosen one's time is not worth timing.
const HOPELESS: f64 = 30.0;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("side_by_side: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut lines = arguments.cases.clone();
    if let Some(path) = &arguments.file {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        lines.extend(text.lines().map(str::to_owned));
    }
    let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
    let cases: Vec<Case> = stated
        .filter(|line| !line.is_empty())
        .map(|line| line.parse().map_err(|error| format!("{error}")))
        .collect::<Result<_, _>>()?;
    let plans: Vec<Plan> = arguments
        .plans
        .iter()
        .map(|json| serde_json::from_str(json).map_err(|error| format!("{json}: {error}")))
        .collect::<Result<_, _>>()?;
    match arguments.backend.as_deref() {
        #[cfg(feature = "cuda")]
        Some("cuda") | None => {
            time::<reduce_kernels::cubecl::cuda::CudaRuntime>(&cases, arguments, &plans)
        }
        #[cfg(all(any(feature = "wgpu", feature = "vulkan"), not(feature = "cuda")))]
        None => time::<reduce_kernels::cubecl::wgpu::WgpuRuntime>(&cases, arguments, &plans),
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Some("wgpu") => {
            time::<reduce_kernels::cubecl::wgpu::WgpuRuntime>(&cases, arguments, &plans)
        }
        other => Err(format!("backend {} is not compiled in", other.unwrap_or("of any kind"))),
    }
}

fn time<R: Runtime>(cases: &[Case], arguments: &Arguments, plans: &[Plan]) -> Result<(), String> {
    let client = R::client(&R::Device::default());
    let device = device_of(&client);
    println!("{} {device:?}", R::name(&client));
    for case in cases {
        let bytes = case.elements() * case.element.bytes();
        if bytes as u64 > client.properties().memory.max_page_size {
            println!("SKIPPED {case}: {bytes} bytes are more than one buffer holds");
            continue;
        }
        let inputs = inputs(&client, case, None);
        let failed = |error| format!("{case}: {error}");
        let options = OperatorOptions::default();
        let (choice, problem) = with_operator!(case.operator, options, operator => {
            let reduction = reduce(operator, &inputs[0]).over(case.axes.clone());
            (reduction.plan(&client).map_err(failed)?, reduction.problem().map_err(failed)?)
        });
        let report = |plan: Plan, note: &str| -> Result<(), String> {
            let us = microseconds_per_call(&client, case, &inputs, Some(plan)).map_err(failed)?;
            let rate = problem.bytes() as f64 / us / 1e3;
            println!("OURS {case}: {us:.2} us {rate:.1} GB/s{note}");
            Ok(())
        };
        report(choice.plan, &format!("  # {}", choice.plan))?;
        let access = Access::widest(&problem, &device);
        let sized = ScheduleKind::ALL.into_iter().filter(|_| arguments.every_schedule);
        let sized = sized.filter_map(|kind| {
            let schedule = schedule::size(kind, &problem, &device, access).ok()?;
            let ns = cost::estimate_ns(&problem, &device, access, schedule);
            (ns < HOPELESS * choice.expected_microseconds * 1e3)
                .then(|| Plan::new(access, schedule))
        });
        for plan in sized.chain(plans.iter().copied()) {
            if plan.check(&problem, &device).is_ok() {
                report(plan, &format!("  #   tried {plan}"))?;
            }
        }
    }
    Ok(())
}
