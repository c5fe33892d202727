//! Stored plans for all reductions of a process, and the record of what it reduced.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use reduce_kernels::{
    Device, ElementType, ErrorKind, Max, NormL2, ReduceError, Sum, TensorDescription,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    list::{reduce_list, scan_list},
    normalize::{LayerNorm, Scaled, Softmax, softmax},
    operator::Mapped,
    pairs::ElementwiseProduct,
    planner::{
        Access, AppliedKind, AppliedListPlan, AppliedPlan, ApplyLaunch, Combine, Direction,
        ListPlan, Plan, Planned, Problem, Schedule, SegmentsMerge, candidates, choose,
        choose_applied, choose_applied_list, choose_list, force_applied,
    },
    plans::{
        PlanInUse, PlanSource, PlanStore, RecordedApplication, RecordedCall, RecordedReduction,
        TunedPlan, allow_waiting_cubes, forbid_waiting_cubes, record_calls, recorded,
        stop_recording, stop_using_plans, stop_using_profile, use_plans, use_profile,
    },
    reduce,
    scan::scan,
    top_k::largest,
};

use crate::run::{read, tensor};

/// Settings are those of a process, so one test at a time changes them. The others that run beside
/// it have other shapes.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows of a shape that no other test has. The sums of a row differ with the order of additions.
struct Rows {
    client: Client,
    x: TensorHandle,
    rows: usize,
}

impl Rows {
    fn new(client: &Client, rows: usize) -> Self {
        let value = |i: usize| ((i * 2_654_435_761) % 1_000_003) as f32 / 1e3 - 500.0;
        let data: Vec<f32> = (0..rows * 1031).map(value).collect();
        let x = tensor(client, &data, &[rows, 1031], &[1031, 1]);
        Self { client: client.clone(), x, rows }
    }

    fn problem(&self) -> Problem {
        reduce(Sum, &self.x).over(1).problem().unwrap()
    }

    fn plan(&self) -> PlanInUse {
        reduce(Sum, &self.x).over(1).plan(&self.client).unwrap()
    }

    /// The bits of the sums.
    fn sums(&self, plan: Option<Plan>) -> Vec<u32> {
        let reduction = reduce(Sum, &self.x).over(1);
        let reduction = match plan {
            Some(plan) => reduction.with_plan(plan),
            None => reduction,
        };
        let sums = reduction.run(&self.client).unwrap();
        read::<f32>(&self.client, &sums, self.rows).into_iter().map(f32::to_bits).collect()
    }

    /// The planner's choice, and a plan that gives other bits.
    fn chosen_and_other(&self, device: &Device) -> (Plan, Plan) {
        let chosen = choose(&self.problem(), device).unwrap().plan;
        let of_chosen = self.sums(Some(chosen));
        let all = candidates(&self.problem(), device).unwrap();
        let mut others = all.iter().map(|candidate| candidate.plan);
        let other = others.find(|&plan| self.sums(Some(plan)) != of_chosen);
        (chosen, other.expect("orders of additions differ"))
    }
}

fn store_of(device: &Device, problem: &Problem, plan: Plan) -> PlanStore {
    let mut store = PlanStore::new(device);
    store.insert(problem, device, TunedPlan::new(plan, 1, 2)).unwrap();
    store
}

/// Every thread plans with the profile of the process from its next call on, and no longer when it
/// is taken away. Here it changes nothing but the time of a launch, so that no plan changes.
pub(crate) fn profiles(client: &Client) {
    let _alone = alone();
    let rows = Rows::new(client, 47);
    let launch_ns = || reduce(Sum, &rows.x).over(1).choose(client).unwrap().estimate.launch_ns;
    let assumed = device_of(client).profile;
    let before = launch_ns();
    let sums = rows.sums(None);
    let mut profile = assumed.clone();
    profile.launch_ns += 1;
    use_profile(client, profile.clone()).unwrap();
    assert_eq!(launch_ns(), before + 1.0);
    assert_eq!(rows.sums(None), sums);
    std::thread::scope(|scope| {
        let other = scope.spawn(launch_ns);
        assert_eq!(other.join().unwrap(), before + 1.0);
    });

    // A refused profile changes nothing.
    profile.launch_ns += 1;
    profile.overlap_tenths = 0;
    let refused = use_profile(client, profile).unwrap_err().to_string();
    assert!(refused.contains("profile.overlap_tenths = 0"), "{refused}");
    assert_eq!(launch_ns(), before + 1.0);

    stop_using_profile(client);
    assert_eq!(launch_ns(), before);
    assert_eq!(device_of(client).profile, assumed);
}

/// Plans whose cubes wait are refused once the process has forbidden them, in every thread, and are
/// what they were when it allows them again.
pub(crate) fn waiting_forbidden(client: &Client) {
    let _alone = alone();
    let x = tensor(client, &[0.5f32; 2000], &[2, 1000], &[1000, 1]);
    let schedule =
        Schedule::Cube { units_per_output: 64, outputs_per_cube: 1, combine: Combine::Shared };
    let plan = Plan::new(Access::new(Direction::Along).with_loads_in_flight(8), schedule);
    let plan = AppliedPlan::Held { plan, in_shared: 0, cubes_per_output: 2 };
    let run = || {
        let softmax = Softmax.of(&x, 1).with_plan(plan);
        let output = softmax.run(client).map_err(|error| error.to_string())?;
        Ok::<_, String>(read::<f32>(client, &output, 2000))
    };
    let before = run();
    let device = device_of(client);
    assert_eq!(before.is_ok(), device.forward_progress, "{before:?}");
    let offsets = tensor(client, &[0u32, 700, 2000], &[3], &[1]);
    let row = tensor(client, &[0.5f32; 2000], &[2000], &[1]);
    // Nothing is run, so that waiting is forbidden no longer than needed: other tests wait.
    let looks_back = || {
        let plan = reduce(Sum, &row).segments(&offsets).plan(client).unwrap().plan;
        plan.merge == SegmentsMerge::LookBack
    };
    let may_look_back = device.forward_progress && device.wide_atomics;
    assert_eq!(looks_back(), may_look_back);
    forbid_waiting_cubes(client);
    let forbidden = "cubes that wait for others are forbidden";
    assert!(run().unwrap_err().contains(forbidden));
    assert!(!looks_back());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run().unwrap_err());
        assert!(other.join().unwrap().contains(forbidden));
    });
    allow_waiting_cubes(client);
    assert_eq!(run(), before);
    assert_eq!(looks_back(), may_look_back);
}

/// A store's plan is run where it fits, from the next call on, and no longer when the store is
/// taken away.
pub(crate) fn stored(client: &Client) {
    let _alone = alone();
    let device = device_of(client);
    let rows = Rows::new(client, 37);
    let problem = rows.problem();
    let (chosen, other) = rows.chosen_and_other(&device);
    let is = |plan, source| {
        let found = rows.plan();
        assert_eq!((found.plan, found.source), (plan, source));
        // What is asked for is what runs, the second time too.
        for _ in 0..2 {
            assert_eq!(rows.sums(None), rows.sums(Some(plan)), "{plan}");
        }
    };
    is(chosen, PlanSource::Chosen);

    use_plans(client, store_of(&device, &problem, other)).unwrap();
    is(other, PlanSource::Stored);
    let reduction = reduce(Sum, &rows.x).over(1);
    assert_eq!(reduction.choose(client).unwrap().plan, chosen);
    let given = reduction.clone().with_plan(chosen).plan(client).unwrap();
    assert_eq!((given.plan, given.source), (chosen, PlanSource::Given));
    let elsewhere = reduction.clone().plan_for(&device).plan(client).unwrap();
    assert_eq!((elsewhere.plan, elsewhere.source), (chosen, PlanSource::Chosen));
    let without = reduce(Max, &rows.x).over(1).plan(client).unwrap();
    assert_eq!(without.source, PlanSource::Chosen);

    // A refused store changes nothing.
    let mut of_other = device.clone();
    of_other.multiprocessors += 1;
    let refused = use_plans(client, PlanStore::new(&of_other)).unwrap_err();
    assert!(refused.is_other_device(), "{refused}");
    assert!(refused.to_string().contains("multiprocessors"), "{refused}");
    is(other, PlanSource::Stored);

    stop_using_plans(client);
    is(chosen, PlanSource::Chosen);
    let store = store_of(&device, &problem, other);
    let once = reduction.clone().with_plans(&store);
    assert_eq!(once.plan(client).unwrap().source, PlanSource::Stored);
    let sums = once.run(client).unwrap();
    let sums: Vec<u32> = read::<f32>(client, &sums, 37).into_iter().map(f32::to_bits).collect();
    assert_eq!(sums, rows.sums(Some(other)));
    is(chosen, PlanSource::Chosen);

    // A plan that may not run, under the line of this problem.
    let columns = TensorDescription::row_major(ElementType::F32, [1024, 64]);
    let columns = reduce(Sum, &columns).over(0).problem().unwrap();
    let unfit = choose(&columns, &device).unwrap().plan;
    assert!(unfit.check(&problem, &device).is_err(), "{unfit}");
    let text = store_of(&device, &columns, unfit).to_json().unwrap();
    let text = text.replace(&columns.to_string(), &problem.to_string());
    let store = PlanStore::parse(&text, &device).unwrap();
    assert!(store.get(&problem).is_some());
    use_plans(client, store).unwrap();
    is(chosen, PlanSource::Chosen);
    stop_using_plans(client);
}

/// A call of one kind, for [`check_stored`]: its plan, and the bits of its results.
struct Kind<'a, P: Planned> {
    problem: P,
    /// The plan that runs. The call asks the store that it is given, or else the process.
    plan: &'a dyn Fn(Option<&PlanStore>) -> PlanInUse<P::Plan>,
    /// The bits of the results, by this plan if it is given.
    run: &'a dyn Fn(Option<P::Plan>) -> Vec<u32>,
}

/// `other` is run where a store has it, from the next call on, and no longer when the store is
/// taken away.
fn check_stored<P: Planned>(client: &Client, kind: &Kind<'_, P>, other: P::Plan) {
    let device = device_of(client);
    let chosen = kind.problem.choose(&device).unwrap().plan;
    assert_ne!(chosen, other);
    kind.problem.check(&other, &device).unwrap();
    let of_other = (kind.run)(Some(other.clone()));
    assert_ne!((kind.run)(Some(chosen.clone())), of_other, "orders of additions differ");
    let is = |plan: &P::Plan, source| {
        let found = (kind.plan)(None);
        assert_eq!((&found.plan, found.source), (plan, source));
        // What is asked for is what runs, the second time too.
        for _ in 0..2 {
            assert_eq!((kind.run)(None), (kind.run)(Some(plan.clone())), "{plan}");
        }
    };
    is(&chosen, PlanSource::Chosen);
    let mut store = PlanStore::new(&device);
    store.insert(&kind.problem, &device, TunedPlan::new(other.clone(), 1, 2)).unwrap();
    let store = PlanStore::parse(&store.to_json().unwrap(), &device).unwrap();
    let own = (kind.plan)(Some(&store));
    assert_eq!((own.plan, own.source), (other.clone(), PlanSource::Stored));
    use_plans(client, store).unwrap();
    is(&other, PlanSource::Stored);
    stop_using_plans(client);
    is(&chosen, PlanSource::Chosen);
}

/// Applied reductions, lists and applied lists take their plans from a store as reductions do.
pub(crate) fn stored_of_every_kind(client: &Client) {
    let _alone = alone();
    let device = device_of(client);
    let rows = Rows::new(client, 43);
    let bits = |tensor: &TensorHandle, count: usize| -> Vec<u32> {
        read::<f32>(client, tensor, count).into_iter().map(f32::to_bits).collect()
    };

    let scaled = || reduce(Sum, &rows.x).over(1).apply(Scaled);
    let problems = scaled().problems().unwrap();
    let chosen = choose_applied(&problems.0, &problems.1, &device).unwrap().plan;
    let run = |plan: Option<AppliedPlan>| {
        let call = plan.map_or_else(scaled, |plan| scaled().with_plan(plan));
        bits(&call.run(client).unwrap(), 43 * 1031)
    };
    let of_chosen = run(Some(chosen));
    let others = AppliedKind::ALL.into_iter();
    let others =
        others.filter_map(|kind| force_applied(kind, &problems.0, &problems.1, &device).ok());
    let alone = AppliedPlan::Separately {
        reduce: Plan::new(Access::new(Direction::Along), Schedule::Unit { units_per_cube: 32 }),
        apply: ApplyLaunch::new(Access::new(Direction::Along), 32, 1, 1),
    };
    let other = others.chain([alone]).find(|&plan| run(Some(plan)) != of_chosen).unwrap();
    let plan = |store: Option<&PlanStore>| match store {
        Some(store) => scaled().with_plans(store).plan(client).unwrap(),
        None => scaled().plan(client).unwrap(),
    };
    check_stored(client, &Kind { problem: problems, plan: &plan, run: &run }, other);

    let list = || reduce_list(Sum, [&rows.x, &rows.x]);
    let run = |plan: Option<ListPlan>| {
        let call = plan.map_or_else(list, |plan| list().with_plan(plan));
        let results = call.run(client).unwrap();
        [bits(&results.each, 2), bits(&results.all, 1)].concat()
    };
    let plan = |store: Option<&PlanStore>| match store {
        Some(store) => list().with_plans(store).plan(client).unwrap(),
        None => list().plan(client).unwrap(),
    };
    let problem = list().problem().unwrap();
    let mut other = choose_list(&problem, &device).unwrap().plan;
    other.units_per_cube /= 2;
    check_stored(client, &Kind { problem, plan: &plan, run: &run }, other);

    let applied = || list().apply(Scaled);
    let run = |plan: Option<AppliedListPlan>| {
        let call = plan.map_or_else(applied, |plan| applied().with_plan(plan));
        let (tensors, results) = call.run(client).unwrap();
        [bits(&tensors[1], 43 * 1031), bits(&results.all, 1)].concat()
    };
    let plan = |store: Option<&PlanStore>| match store {
        Some(store) => list().with_plans(store).apply(Scaled).plan(client, false).unwrap(),
        None => applied().plan(client, false).unwrap(),
    };
    let problem = applied().problem(false).unwrap();
    let mut other = choose_applied_list(&problem, &device).unwrap().plan;
    other.reduce.units_per_cube /= 2;
    check_stored(client, &Kind { problem, plan: &plan, run: &run }, other);
}

/// Every thread takes a new store at its next call, whatever it has cached.
pub(crate) fn stored_for_threads(client: &Client) {
    const THREADS: usize = 3;
    let _alone = alone();
    let device = device_of(client);
    let rows = Rows::new(client, 41);
    let problem = rows.problem();
    let (chosen, other) = rows.chosen_and_other(&device);
    let bits = [rows.sums(Some(chosen)), rows.sums(Some(other))];
    let turn = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        let run = || {
            let mut right = true;
            for phase in 0..4 {
                turn.wait();
                // Twice: prepared, and from the cache.
                right &= (0..2).all(|_| rows.sums(None) == bits[phase % 2]);
                turn.wait();
            }
            // While the store comes and goes, one of the two runs.
            turn.wait();
            right && (0..20).all(|_| bits.contains(&rows.sums(None)))
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        for phase in 0..4 {
            match phase % 2 {
                0 => stop_using_plans(client),
                _ => use_plans(client, store_of(&device, &problem, other)).unwrap(),
            }
            turn.wait();
            turn.wait();
        }
        turn.wait();
        for _ in 0..20 {
            stop_using_plans(client);
            use_plans(client, store_of(&device, &problem, other)).unwrap();
        }
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
    stop_using_plans(client);
    assert_eq!(rows.sums(None), bits[0]);
}

/// What runs while it is recorded is recorded once, and makes its problem again.
pub(crate) fn recorded_reductions(client: &Client) {
    let _alone = alone();
    let of_test = || -> Vec<RecordedReduction> {
        let all = recorded(client).into_iter().filter_map(|call| match call {
            RecordedCall::Reduction(reduction) => Some(reduction),
            _ => None,
        });
        all.filter(|reduction| reduction.shape.contains(&1031)).collect()
    };
    let Rows { x, .. } = &Rows::new(client, 43);
    // A shape that is cached is recorded all the same.
    reduce(Sum, x).over(1).run(client).unwrap();
    assert_eq!(of_test(), []);
    record_calls(client);
    for _ in 0..3 {
        reduce(Sum, x).over(1).run(client).unwrap();
    }
    // The order of the axes of a view, a second input, and types.
    let columns = TensorHandle::new(x.handle.clone(), [1031, 43], [1, 1031], x.dtype);
    let row = TensorHandle::new(x.handle.clone(), [1031], [1], x.dtype);
    reduce(Max, &columns).over(1).run(client).unwrap();
    let dot = reduce(Sum, x).paired(&row, ElementwiseProduct).over(1);
    dot.run(client).unwrap();
    let typed = || reduce(Sum, x).accumulate_in(ElementType::F32).output_type(ElementType::F16);
    typed().run(client).unwrap();
    // An output with strides of its own.
    let memory = tensor(client, &[0f32; 86], &[43, 1], &[2, 1]);
    reduce(Sum, x).over(1).run_into(client, memory.clone().binding()).unwrap();
    let plan = reduce(Max, x).over(1).choose(client).unwrap().plan;
    reduce(Max, x).over(1).with_plan(plan).run(client).unwrap();
    softmax(client, x, 1).unwrap();
    stop_recording(client);
    reduce(Max, x).over(1).run(client).unwrap();

    let found = of_test();
    let lines: Vec<String> = found.iter().map(RecordedReduction::to_string).collect();
    let expected = [
        "sum f32 [43, 1031] axis 1",
        "max f32 [1031, 43] axis 1 strides [1, 1031]",
        "sum of product f32 [43, 1031] axis 1 with f32 strides [0, 1]",
        "sum f32 [43, 1031] axis all in f32 to f16",
        "sum f32 [43, 1031] axis 1 output strides [2]",
    ];
    assert_eq!(lines, expected);
    for reduction in &found {
        assert_eq!(RecordedReduction::parse(&reduction.to_json()).unwrap(), *reduction);
    }
    let problem = |nth: usize| found[nth].problem::<Sum>();
    assert_eq!(problem(0).unwrap(), reduce(Sum, x).over(1).problem().unwrap());
    assert_eq!(problem(3).unwrap(), typed().problem().unwrap());
    assert_eq!(problem(4).unwrap().output_span(), 85);
    let refused = problem(1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Arguments);
    assert_eq!(refused.to_string(), "the recorded call is by `max`, not by `sum`");
    assert_eq!(reduce(Max, &columns).over(1).record().unwrap(), found[1]);
    let again = found[3].reduction(Sum, x, None);
    assert_eq!(again.problem().unwrap(), typed().problem().unwrap());
    let dot = reduce(Sum, x).paired(&row, ElementwiseProduct).over(1);
    assert_eq!(found[2].problem::<Mapped<ElementwiseProduct, Sum>>(), dot.problem());

    // It begins anew.
    record_calls(client);
    stop_recording(client);
    assert_eq!(of_test(), []);
}

/// Calls of every kind are recorded, and make their problems again from a line of text.
pub(crate) fn recorded_calls(client: &Client) {
    let _alone = alone();
    let Rows { x, .. } = &Rows::new(client, 37);
    let row = TensorHandle::new(x.handle.clone(), [1031], [1], x.dtype);
    let scaled = || reduce(Sum, x).paired(&row, ElementwiseProduct).over(1).apply(Scaled);
    let list = || reduce_list(NormL2, [x, &row]).accumulate_in(ElementType::F32);
    let clipped = || list().apply(Scaled);
    let memory = tensor(client, &[0f32; 37 * 1032], &[37, 1031], &[1032, 1]);
    record_calls(client);
    for _ in 0..2 {
        scaled().run(client).unwrap();
        scaled().output_type(ElementType::F16).run_with_results(client).unwrap();
        scaled().run_into(client, memory.clone().binding()).unwrap();
        LayerNorm { eps: 1e-5 }.of(x, 1).operand(&row, 1).run(client).unwrap();
        list().run(client).unwrap();
        clipped().run(client).unwrap();
        largest(3, x).over(1).run(client).unwrap();
        scan(Sum, x).over(0).exclusive().run(client).unwrap();
        scan_list(Sum, [x, &row]).over(0).reverse().run(client).unwrap();
    }
    let plan = list().choose(client).unwrap().plan;
    list().with_plan(plan).run(client).unwrap();
    stop_recording(client);
    list().run(client).unwrap();

    let of_test = recorded(client).into_iter().filter(|call| call.to_json().contains("37,1031"));
    let found: Vec<RecordedCall> = of_test.collect();
    let lines: Vec<String> = found.iter().map(RecordedCall::to_string).collect();
    let of_rows = "scaled after sum of product f32 [37, 1031] axis 1 with f32 strides [0, 1]";
    let expected = [
        of_rows.to_owned(),
        format!("{of_rows} to f16 with results"),
        format!("{of_rows} output strides [1032, 1]"),
        "standardized after mean_rstd f32 [37, 1031] axis 1 operand f32 strides [0, 1]".to_owned(),
        "norm_l2 of 2 tensors of 39178 elements".to_owned(),
        "scaled after norm_l2 of 2 tensors of 39178 elements".to_owned(),
        "top_k 3 of f32 [37, 1031] axis 1".to_owned(),
        "exclusive scan of sum f32 [37, 1031] axis 0".to_owned(),
        "reverse scan along axis 0 of sum of 2 tensors of 39178 elements".to_owned(),
    ];
    assert_eq!(lines, expected);
    for call in &found {
        assert_eq!(RecordedCall::parse(&call.to_json()).unwrap(), *call);
    }
    type Dot = Mapped<ElementwiseProduct, Sum>;
    let [
        RecordedCall::Application(application),
        RecordedCall::Application(with_results),
        RecordedCall::Application(into),
        _,
        RecordedCall::List(of_list),
        RecordedCall::ListApplication(of_clipped),
        RecordedCall::TopK(of_top_k),
        RecordedCall::Scan(of_scan),
        RecordedCall::ListScan(of_list_scan),
    ] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!(application.problems::<Dot, Scaled>(), scaled().problems());
    let strides = |recorded: &RecordedApplication| {
        let (applied, _) = recorded.problems::<Dot, Scaled>().unwrap();
        applied.problem().kept()[0].output_stride
    };
    assert_eq!((strides(application), strides(into)), (1031, 1032));
    assert!(with_results.problems::<Dot, Scaled>().unwrap().0.stores_results());
    assert_eq!(of_list.problem::<NormL2>(), list().problem());
    assert_eq!(of_clipped.problem::<NormL2, Scaled>(), clipped().problem(false));
    assert_eq!(of_top_k.problem(), largest(3, x).over(1).problem());
    assert_eq!(of_scan.problem::<Sum>(), scan(Sum, x).over(0).exclusive().problem());
    assert_eq!(
        of_list_scan.problem::<Sum>(),
        scan_list(Sum, [x, &row]).over(0).reverse().problem()
    );
    let message = "the recorded call is by `norm_l2`, not by `sum`";
    let refused = |error: ReduceError| (error.kind(), error.to_string());
    let expected = (ErrorKind::Arguments, message.to_owned());
    assert_eq!(of_list.problem::<Sum>().map_err(refused).unwrap_err(), expected);
    assert_eq!(of_clipped.problem::<Sum, Scaled>().map_err(refused).unwrap_err(), expected);
    assert_eq!(scaled().record().unwrap(), found[0]);
    assert_eq!(list().record().unwrap(), found[4]);
    assert_eq!(clipped().record(false).unwrap(), found[5]);
    assert_ne!(clipped().record(true).unwrap(), found[5]);
}

/// Text from anywhere is refused, or gives an error where it makes no sense.
#[test]
fn damaged_records_are_refused() {
    let x = TensorDescription::row_major(ElementType::F32, [4, 6]);
    let line = reduce(Sum, &x).over(1).record().unwrap().to_json();
    assert_eq!(
        line,
        concat!(
            r#"{"operator":"sum","element":"f32","shape":[4,6],"strides":[6,1],"#,
            r#""alignment":16,"axes":[1]}"#
        )
    );
    let error = RecordedReduction::parse(&line[1..]).unwrap_err().to_string();
    assert!(error.contains("is no recorded call"), "{error}");
    assert!(RecordedReduction::parse(&line.replace("axes", "axis")).is_err());
    for (old, new) in [
        ("[6,1]", "[6]"),
        ("[1]", "[2]"),
        ("[4,6]", "[18446744073709551615,6]"),
        (r#""axes""#, r#""output_strides":[1,2],"axes""#),
        (r#""axes""#, r#""outputs":["bool",null,null],"axes""#),
        (r#""axes""#, r#""second":{"element":"f32","strides":[1],"alignment":16},"axes""#),
    ] {
        let changed = RecordedReduction::parse(&line.replacen(old, new, 1)).unwrap();
        assert!(changed.problem::<Sum>().is_err(), "{new}");
    }
    // An alignment that no address has counts as the largest power of two in it.
    let odd = RecordedReduction::parse(&line.replace("16", "12")).unwrap();
    assert_eq!(odd.problem::<Sum>().unwrap().alignment(), 4);
}
