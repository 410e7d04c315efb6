//! JMeter's samples as XML, which may stand within each other: a sampler that followed a redirect, or fetched what a page embeds, is an
//! element with one for each of these requests in it, and its own time is that of all of them.

/// How the elements of samples begin and end.
const ELEMENTS: [(&str, &str); 2] = [("<httpSample ", "</httpSample>"), ("<sample ", "</sample>")];
/// Samples within each other, of which JMeter writes two or three: lines of elements that are never closed do not take up memory.
const DEPTH_MAX: usize = 64;

/// Whether the line begins a sample.
pub(super) fn begins(line: &str) -> bool {
    ELEMENTS.iter().any(|(begin, _)| line.trim_start().starts_with(begin))
}

/// The elements that have begun and not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenSamples(Vec<OpenSample>);

#[derive(Clone, Debug, PartialEq)]
struct OpenSample {
    /// The line with its values.
    line: String,
    /// Whether there are samples in it, which are what was sent.
    has_samples: bool,
}

impl OpenSamples {
    /// The line of the sample that this line ends and that has no others within; `None` if it ends none.
    pub fn ended(&mut self, line: &str) -> Option<String> {
        let text = line.trim();
        if begins(text) {
            if let Some(parent) = self.0.last_mut() {
                parent.has_samples = true;
            }
            if text.ends_with("/>") || ELEMENTS.iter().any(|(_, end)| text.ends_with(end)) {
                return Some(text.to_owned());
            }
            if self.0.len() == DEPTH_MAX {
                self.0.clear();
            }
            self.0.push(OpenSample { line: text.to_owned(), has_samples: false });
            return None;
        }
        if !ELEMENTS.iter().any(|(_, end)| text.starts_with(end)) {
            return None;
        }
        self.0.pop().filter(|sample| !sample.has_samples).map(|sample| sample.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_with_samples_in_it_is_none_of_the_requests() {
        let lines = [
            "<httpSample t=\"1\"/>",
            "<httpSample t=\"2\">",
            "  <responseData>x</responseData>",
            "</httpSample>",
            "<sample t=\"30\">",
            "  <httpSample t=\"3\">",
            "    <httpSample t=\"4\"/>",
            "    <httpSample t=\"5\"></httpSample>",
            "  </httpSample>",
            "</sample>",
            "</testResults>",
        ];
        let mut open = OpenSamples::default();
        let ended: Vec<String> = lines.iter().filter_map(|line| open.ended(line)).collect();
        let times: Vec<&str> = ended.iter().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(times, ["1", "2", "4", "5"]);
    }

    #[test]
    fn elements_that_never_end_are_bounded() {
        let mut open = OpenSamples::default();
        for _ in 0..1000 {
            assert_eq!(open.ended("<sample t=\"1\">"), None);
        }
        assert!(open.0.len() <= DEPTH_MAX);
    }
}
