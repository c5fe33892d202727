//! Times cases given in the words of the peers' programs, one a line.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use reduce_benches::{Case, inputs, microseconds_per_call};
use reduce_kernels::{
    ScheduleKind, Sum,
    cubecl::prelude::*,
    device_of,
    planner::{Access, Plan, schedule},
    reduce,
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
}

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
    match arguments.backend.as_deref() {
        #[cfg(feature = "cuda")]
        Some("cuda") | None => time::<reduce_kernels::cubecl::cuda::CudaRuntime>(&cases, arguments),
        #[cfg(all(any(feature = "wgpu", feature = "vulkan"), not(feature = "cuda")))]
        None => time::<reduce_kernels::cubecl::wgpu::WgpuRuntime>(&cases, arguments),
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Some("wgpu") => time::<reduce_kernels::cubecl::wgpu::WgpuRuntime>(&cases, arguments),
        other => Err(format!("backend {} is not compiled in", other.unwrap_or("of any kind"))),
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu", feature = "vulkan"))]
fn time<R: Runtime>(cases: &[Case], arguments: &Arguments) -> Result<(), String> {
    let client = R::client(&R::Device::default());
    let device = device_of(&client);
    println!("{} {device:?}", R::name(&client));
    for case in cases {
        let inputs = inputs(&client, case, None);
        let failed = |error| format!("{case}: {error}");
        // The layout, and with it the plan, is the same for every operator of one-word accumulators.
        let reduction = reduce::<Sum, R>(&inputs[0]).over(case.axes.clone());
        let choice = reduction.plan(&client).map_err(failed)?;
        let problem = reduction.problem().map_err(failed)?;
        let report = |plan: Plan, note: &str| -> Result<(), String> {
            let us = microseconds_per_call(&client, case, &inputs, Some(plan)).map_err(failed)?;
            let rate = problem.bytes() as f64 / us / 1e3;
            println!("OURS {case}: {us:.2} us {rate:.1} GB/s{note}");
            Ok(())
        };
        report(choice.plan, &format!("  # {}", choice.plan))?;
        if arguments.every_schedule {
            let access = Access::widest(&problem, &device);
            for kind in ScheduleKind::ALL {
                let sized = schedule::size(kind, &problem, &device, access);
                let plan = sized.ok().map(|schedule| Plan::new(access, schedule));
                if let Some(plan) = plan.filter(|plan| plan.check(&problem, &device).is_ok()) {
                    report(plan, &format!("  #   tried {plan}"))?;
                }
            }
        }
    }
    Ok(())
}
