//! The public API of the libraries as text, from the pages that rustdoc writes. The texts are in
//! `docs/api/`, so a change of an API shows where changes are read.
//!
//! rustdoc's pages have what macros make, which the sources do not show. Its JSON would be easier
//! to read, and needs a nightly toolchain.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::{
    cargo::{cargo_command, lines_of},
    process::Failure,
};

/// A library whose API is listed.
struct Library {
    package: &'static str,
    /// Whether its root may have [`MOST_NAMES`] at most, and its functions need an example each.
    is_strict: bool,
}

const LIBRARIES: [Library; 3] = [
    Library { package: "reduce-planner", is_strict: false },
    Library { package: "reduce-kernels", is_strict: true },
    Library { package: "reduce-burn", is_strict: true },
];

/// Most names that a root may have.
const MOST_NAMES: usize = 60;

/// The class of an example on a page.
const EXAMPLE: &str = "rust-example-rendered";

/// The folder of the lists.
const FOLDER: &str = "docs/api";

/// Most lines of a difference that a message shows.
const MOST_LINES: usize = 40;

/// Compares the lists with the pages that rustdoc has written, counts the names at the roots, and
/// looks for examples.
pub(crate) fn check() -> Result<(), Failure> {
    let Folders { root, pages } = folders()?;
    for Library { package, is_strict } in LIBRARIES {
        let api = Api::read(&pages, package)?;
        let names = api.names_at_root;
        if is_strict && names > MOST_NAMES {
            return Err(Failure::Api(format!(
                "the root of {package} has {names} names, and may have {MOST_NAMES}: move some of \
                 them into a module"
            )));
        }
        if is_strict && !api.without_example.is_empty() {
            let functions = api.without_example.join(", ");
            return Err(Failure::Api(format!("{package}: no example is in {functions}")));
        }
        let (path, text) = (list_of(&root, package), api.text(package));
        let listed = read(&path)?;
        if listed != text {
            return Err(Failure::Api(format!(
                "the API of {package} is not the one in {}. If it should change, write the list \
                 anew with `cargo xtask api`:\n{}",
                path.display(),
                difference(&listed, &text)
            )));
        }
        eprintln!("{package}: {} lines of API, {names} names at the root", text.lines().count());
    }
    Ok(())
}

/// Writes the lists from the pages that rustdoc has written.
pub(crate) fn write() -> Result<(), Failure> {
    let Folders { root, pages } = folders()?;
    for Library { package, .. } in LIBRARIES {
        let (path, text) = (list_of(&root, package), Api::read(&pages, package)?.text(package));
        fs::write(&path, text).map_err(|reason| Failure::File { path: path.clone(), reason })?;
        eprintln!("{}", path.display());
    }
    Ok(())
}

fn list_of(root: &Path, package: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{package}.txt"))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|reason| Failure::File { path: path.into(), reason })
}

/// The folders of the workspace and of rustdoc's pages.
struct Folders {
    root: PathBuf,
    pages: PathBuf,
}

fn folders() -> Result<Folders, Failure> {
    let mut metadata = Value::Null;
    let command = cargo_command(&["metadata", "--no-deps", "--format-version", "1"]);
    lines_of(command, |line| metadata = serde_json::from_str(line).unwrap_or_default())?;
    let folder = |name: &str| {
        let missing = || Failure::Missing(format!("cargo names no {name}"));
        metadata[name].as_str().map(PathBuf::from).ok_or_else(missing)
    };
    Ok(Folders { root: folder("workspace_root")?, pages: folder("target_directory")?.join("doc") })
}

/// What a library offers.
struct Api {
    /// A block of lines for each item, in the order of modules, then kinds, then names.
    items: Vec<String>,
    names_at_root: usize,
    /// The functions whose documents have no example.
    without_example: Vec<String>,
}

impl Api {
    fn read(pages: &Path, package: &str) -> Result<Self, Failure> {
        let mut api = Self { items: Vec::new(), names_at_root: 0, without_example: Vec::new() };
        api.names_at_root = api.read_module(&pages.join(package.replace('-', "_")), "")?;
        Ok(api)
    }

    /// Reads the pages of a module and of those within it. Gives the number of its names.
    fn read_module(&mut self, folder: &Path, path: &str) -> Result<usize, Failure> {
        let index = read(&folder.join("index.html"))?;
        let mut names = 0;
        for exported in index.split("id=\"reexport.").skip(1) {
            let code = between(exported, "<code>", "</code>").unwrap_or_default();
            self.items.push(format!("{} [in {path}]", one_line(code)).replace(" [in ]", ""));
            names += 1;
        }
        let kinds = kinds_of(&read(&folder.join("sidebar-items.js"))?);
        for (kind, of_kind) in &kinds {
            for name in of_kind.as_array().into_iter().flatten().filter_map(Value::as_str) {
                names += 1;
                if kind != "mod" {
                    let page = read(&folder.join(format!("{kind}.{name}.html")))?;
                    if kind == "fn" && !page.contains(EXAMPLE) {
                        self.without_example.push(format!("{path}{name}"));
                    }
                    self.items.push(item(kind, &format!("{path}{name}"), &page));
                }
            }
        }
        let of_kind = |kind| kinds.get(kind).and_then(Value::as_array).into_iter().flatten();
        // CubeCL's macro makes a module beside each function, with the function's code in kernels.
        let is_twin = |module: &&Value| of_kind("fn").any(|function| function == *module);
        let modules = of_kind("mod").filter(|module| !is_twin(module));
        for name in modules.filter_map(Value::as_str) {
            self.items.push(format!("mod {path}{name}"));
            self.read_module(&folder.join(name), &format!("{path}{name}::"))?;
        }
        Ok(names)
    }

    fn text(&self, package: &str) -> String {
        let mut text = format!(
            "The public API of {package}.\n\
             `cargo xtask api` writes this file, and `cargo xtask test` compares it.\n\n"
        );
        for item in &self.items {
            text += item;
            text.push('\n');
        }
        text
    }
}

/// The names of a module by kind: `window.SIDEBAR_ITEMS = {"fn":["sum"],...};`.
fn kinds_of(script: &str) -> Map<String, Value> {
    let object = script.find('{').zip(script.rfind('}'));
    let object = object.and_then(|(from, to)| serde_json::from_str(&script[from..=to]).ok());
    object.unwrap_or_default()
}

/// The block of lines for an item: its declaration, its methods, and the traits that it implements.
fn item(kind: &str, path: &str, page: &str) -> String {
    let mut lines = vec![format!("{kind} {path}")];
    let declaration = between(page, "<pre class=\"rust item-decl\">", "</pre>").unwrap_or_default();
    match kind {
        "struct" | "enum" | "union" | "trait" => {
            let declared = text_of(declaration);
            lines.extend(
                declared.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(indented),
            );
        }
        _ => lines.push(indented(&one_line(declaration))),
    }
    // Implementations of traits stand for their methods.
    for (list, with_methods) in
        [("id=\"implementations-list\"", true), ("id=\"trait-implementations-list\"", false)]
    {
        let Some(list) = between(page, list, "<h2 ") else { continue };
        for header in list.split(" class=\"code-header\">").skip(1) {
            let (code, is_method) = match (header.find("</h3>"), header.find("</h4>")) {
                (Some(end), other) if other.is_none_or(|other| end < other) => {
                    (&header[..end], false)
                }
                (_, Some(end)) => (&header[..end], true),
                _ => continue,
            };
            if !is_method {
                lines.push(indented(&one_line(code)));
            } else if with_methods {
                lines.push(indented(&indented(&one_line(code))));
            }
        }
    }
    lines.join("\n")
}

fn indented(line: &str) -> String {
    format!("    {line}")
}

/// What stands between the first `from` and the next `to`, or the end.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(rest.find(to).map_or(rest, |end| &rest[..end]))
}

/// The text of a piece of a page on one line.
fn one_line(html: &str) -> String {
    let words = text_of(html).split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("( ", "(").replace(", )", ")")
}

/// The text of a piece of a page, without tags, and without what folds long declarations.
fn text_of(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        text += &rest[..start];
        // Attributes stand in a block of their own.
        if rest[start..].starts_with("</div>") {
            text.push('\n');
        }
        let end = if rest[start..].starts_with("<summary") { "</summary>" } else { ">" };
        let after = rest[start..].find(end).map_or(rest.len(), |at| start + at + end.len());
        rest = &rest[after..];
    }
    text += rest;
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("\u{a0}", " "),
        ("&amp;", "&"),
    ];
    entities.iter().fold(text, |text, (entity, character)| text.replace(entity, character))
}

/// The lines that only one of two texts has.
fn difference(old: &str, new: &str) -> String {
    let lacks = |text: &str, line: &str| !text.lines().any(|other| other == line);
    let removed = old.lines().filter(|line| lacks(new, line)).map(|line| format!("- {line}"));
    let added = new.lines().filter(|line| lacks(old, line)).map(|line| format!("+ {line}"));
    let mut lines: Vec<String> = removed.chain(added).collect();
    if lines.is_empty() {
        return "the order of lines differs".into();
    }
    let count = lines.len();
    lines.truncate(MOST_LINES);
    if count > MOST_LINES {
        lines.push(format!("and {} lines more", count - MOST_LINES));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{difference, item, kinds_of, one_line};

    /// Protects that what rustdoc writes becomes Rust: tags and folds vanish, entities are read.
    #[test]
    fn pages_become_text() {
        let html = "fn <a href=\"x\">run</a>&lt;'a&gt;(\n    x: &amp;'a T,\n)";
        assert_eq!(one_line(html), "fn run<'a>(x: &'a T)");
        let folded = "{<summary class=\"hideme\"><span>Show 13 variants</span></summary> A, }";
        assert_eq!(one_line(folded), "{ A, }");
    }

    /// Protects that methods and traits of a type are listed, and not those of blanket
    /// implementations.
    #[test]
    fn an_item_has_its_methods_and_traits() {
        let page = "<pre class=\"rust item-decl\"><code>pub struct S { <span>/* private fields \
                    */</span> }</code></pre><h2 id=\"implementations\">\
                    <div id=\"implementations-list\"><h3 class=\"code-header\">impl S</h3>\
                    <h4 class=\"code-header\">pub fn f(&amp;self)</h4><h2 id=\"x\">\
                    <div id=\"trait-implementations-list\"><h3 class=\"code-header\">impl Clone for \
                    S</h3><h4 class=\"code-header\">fn clone(&amp;self) -&gt; S</h4><h2 id=\"y\">\
                    <div id=\"blanket-implementations-list\"><h3 class=\"code-header\">impl Any for \
                    S</h3>";
        let lines = [
            "struct list::S",
            "    pub struct S { /* private fields */ }",
            "    impl S",
            "        pub fn f(&self)",
            "    impl Clone for S",
        ];
        assert_eq!(item("struct", "list::S", page).lines().collect::<Vec<_>>(), lines);
    }

    /// Protects that the names of a module are found.
    #[test]
    fn names_are_read() {
        let kinds = kinds_of(r#"window.SIDEBAR_ITEMS = {"fn":["max","sum"],"mod":["list"]};"#);
        assert_eq!(kinds["fn"].as_array().map(Vec::len), Some(2));
        assert!(kinds_of("").is_empty());
    }

    /// Protects that a difference names what changed.
    #[test]
    fn differences_are_named() {
        assert_eq!(difference("a\nb\n", "a\nc\n"), "- b\n+ c");
        assert_eq!(difference("a\nb\n", "b\na\n"), "the order of lines differs");
    }
}
