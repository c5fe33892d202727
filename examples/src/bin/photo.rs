//! The demo: three reductions of a photograph, as a user of the library would write them.

use std::{error::Error, path::Path, process::ExitCode};

use reduce_examples::{Array, Number, download};
use reduce_kernels::{
    Max, Mean, Operator,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    operator::One,
    reduce, storage_type,
};
use reduce_programs::{
    Backend, OnDevice,
    command_line::{fail, say},
    on_device,
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("photo", error),
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cat.npy");
    on_device(None, Photo(Array::read(&path)?))?
}

/// Height × width × 3, values from 0 to 255.
struct Photo(Array);

impl OnDevice for Photo {
    type Output = Result<(), Box<dyn Error>>;

    fn on(self, client: &Client, _: Backend, name: &str) -> Self::Output {
        let Photo(array) = self;
        say(format_args!(
            "a photograph of a cat, {:?} of {}, on {name} through {}",
            array.shape,
            array.element,
            client.name()
        ))?;
        let photo = TensorHandle::new(
            client.create_from_slice(&array.bytes),
            array.shape,
            array.strides,
            storage_type(array.element),
        );
        let channels = values(Mean, client, &photo, &[0, 1])?;
        say(format_args!("mean of red, green and blue: {channels:.1?}"))?;
        let rows = values(Mean, client, &photo, &[1, 2])?;
        let brightest = (0..rows.len()).max_by(|&a, &b| rows[a].total_cmp(&rows[b]));
        let row = brightest.ok_or("a photograph without rows")?;
        say(format_args!("brightest row: {row}, with a mean of {:.1}", rows[row]))?;
        let brightest = values(Max, client, &photo, &[0, 1, 2])?;
        say(format_args!("overall maximum: {}", brightest[0]))?;
        Ok(())
    }
}

/// Reduces, says how, and reads the results.
fn values<O: Operator<Inputs = One, Results = One>>(
    operator: O,
    client: &Client,
    photo: &TensorHandle,
    axes: &[usize],
) -> Result<Vec<f64>, Box<dyn Error>> {
    let reduction = reduce(operator, photo).over(axes).keep_dims(false);
    let choice = reduction.choose(client)?;
    say(format_args!("\n{} over axes {axes:?}: {}", O::NAME, choice.plan))?;
    let output = reduction.run(client)?;
    let results = download(client, &[output])?;
    Ok(results[0].values().into_iter().map(Number::to_f64).collect())
}
