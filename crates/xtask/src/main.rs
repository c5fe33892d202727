#![doc = "x"]
fn main(){}
