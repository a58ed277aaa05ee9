// models/template.h: chat templates: a bounded subset of Jinja that renders the templates of published models byte for
// byte as the reference (jinja2 in a sandbox, as Hugging Face's transformers sets it up) does.
// Owns: the language. Must not know: models, tokens, what messages mean. Reads no files, keeps no state.
// Main path: models/chat -> [models/template] -> models/template_parse, models/template_run
#pragma once
#include "value.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

struct template_limits {
    size_t max_source_bytes = 1u << 20;
    size_t max_tokens = 300'000;
    int max_nesting = 100;            // of blocks and brackets in the source
    int max_height = 300;             // of the tree; a chain a + b + c ... is as high as it is long
    int max_depth = 450;              // of the tree while it runs, through calls of macros
    uint64_t max_steps = 10'000'000;  // about a second
    size_t max_output_bytes = 32u << 20;
    size_t max_memory_bytes = 128u << 20;  // of all values and captured text at one time
};

// What strftime_now formats.
struct template_time {
    int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};

struct rendered_template {
    // The text and the origin of its bytes: input is what came from the variables (but not from trusted strings, see
    // value::of_trusted); all else was written by the template.
    traced_text text;
    // For each item of the variable `messages` that is a map: the offset in text where a `for` loop over it first began
    // an iteration that wrote something; when none wrote, where the last one began; -1 when no loop met the message. A
    // loop meets a message in any list that holds the very object, a slice or a filtered list too. Inside a macro or
    // a block that is captured, the offset is that of the text written before.
    std::vector<int64_t> message_starts;
};

struct template_tree;

// A compiled template. Immutable and cheap to copy; may render on several threads at once.
class chat_template {
  public:
    // DUET_ERR_FORMAT: not valid, or over a limit. Messages of errors begin "template line N: ".
    static duet_status compile(std::string_view source, chat_template* out, error_text& err,
                               const template_limits& limits = {});

    // variables: a map; its members are what the template sees by name.
    // DUET_ERR_ARG: the template refuses the variables (raise_exception, or an operation that fails);
    // DUET_ERR_UNSUPPORTED: it uses what this interpreter lacks; DUET_ERR_FULL: a limit.
    duet_status render(const value& variables, const template_time& now, rendered_template* out, error_text& err) const;

  private:
    std::shared_ptr<const template_tree> tree_;
    template_limits limits_;
};

}  // namespace duet
