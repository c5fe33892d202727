//! Plans as sentences.

use core::fmt;

use crate::{
    plan::{Access, Combine, Merge, Plan, Schedule},
    problem::Direction,
};

impl Access {
    /// `output` if a tile is one output, and `output tile` otherwise.
    pub(crate) const fn tile_name(&self) -> &'static str {
        match self.outputs_per_tile() {
            0 | 1 => "output",
            _ => "output tile",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Along => "along the reduction",
            Direction::Across => "across outputs",
        };
        match self.vector {
            1 => write!(f, "single elements {direction}")?,
            vector => write!(f, "vectors of {vector} {direction}")?,
        }
        if self.peeled {
            f.write_str(" with head and tail peeled")?;
        }
        if self.realigned {
            f.write_str(" with rows realigned")?;
        }
        match self.loads_in_flight {
            1 => f.write_str(", 1 load in flight")?,
            loads => write!(f, ", {loads} loads in flight")?,
        }
        if self.accumulators != 1 {
            write!(f, " in {} accumulators", self.accumulators)?;
        }
        if self.outputs_in_flight != 1 {
            write!(f, " for each of {} {}s", self.outputs_in_flight, self.tile_name())?;
        }
        if self.in_passes {
            f.write_str(", held for two passes")?;
        }
        Ok(())
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Combine::Plane { lanes } => write!(f, "plane operations over {lanes} lanes"),
            Combine::Shared => f.write_str("shared memory"),
        }
    }
}

/// `1 unit`, `2 units`.
struct Count<'a>(u32, &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

impl fmt::Display for Plan {
    /// Such as `plane: 4 lanes per output, 256 units per cube; vectors of 4 along the reduction, 2
    /// loads in flight for each of 2 outputs`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = self.access.tile_name();
        match self.schedule {
            Schedule::Unit { units_per_cube } => {
                write!(f, "unit: 1 unit per {output}, {} per cube", Count(units_per_cube, "unit"))?;
            }
            Schedule::Plane { lanes_per_output, units_per_cube } => write!(
                f,
                "plane: {} per {output}, {} per cube",
                Count(lanes_per_output, "lane"),
                Count(units_per_cube, "unit")
            )?,
            Schedule::Cube { units_per_output, outputs_per_cube, combine } => write!(
                f,
                "cube: {} per {output}, {} per cube, combined by {combine}",
                Count(units_per_output, "unit"),
                Count(outputs_per_cube, output)
            )?,
            Schedule::Split {
                cubes_per_output,
                units_per_output,
                outputs_per_cube,
                combine,
                merge,
            } => {
                write!(
                    f,
                    "split: {} per {output}, in each cube {} per {output} and {}, combined by \
                     {combine}; ",
                    Count(cubes_per_output, "cube"),
                    Count(units_per_output, "unit"),
                    Count(outputs_per_cube, output)
                )?;
                match merge {
                    Merge::LastCube => f.write_str("the last cube merges")?,
                    Merge::SecondLaunch { units_per_output, outputs_per_cube } => write!(
                        f,
                        "a second launch merges with {} per output and {} per cube",
                        Count(units_per_output, "unit"),
                        Count(outputs_per_cube, "output")
                    )?,
                }
            }
        }
        write!(f, "; {}", self.access)?;
        self.numerics.write_unusual(f, "; ")
    }
}
