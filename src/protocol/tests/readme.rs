//! The README's examples of a configuration have no fault.

use protocol::config::Config;

#[test]
fn every_example_in_the_readme_is_a_configuration() {
    let readme = include_str!("../../../README.md");
    let blocks = readme.split("```json\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let examples: Vec<&str> = blocks.filter(|block| block.contains("\"algorithm\"")).collect();
    assert!(!examples.is_empty());
    for example in examples {
        // A block that begins with `"rules"` or another field shows a part.
        let whole =
            if example.trim_start().starts_with('{') { example.to_owned() } else { format!("{{{example}}}") };
        if let Err(faults) = Config::parse(whole.as_bytes()) {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            panic!("{}\nin {example}", faults.join("\n"));
        }
    }
}
