// models/template_run.h: the interpreter: what a template's statements, operators, filters and methods share while it
// runs. The first error is kept in err and makes failed() true; from then on results do not matter, and every loop
// ends. Main path: models/template_parse -> [models/template_run] -> models/template_eval, template_functions
#pragma once
#include "template.h"
#include "template_functions.h"
#include "template_text.h"
#include "template_tree.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace duet {

// ---- objects that only templates have ----

// Behind each type stand the members that it uses; the values that an object holds stand in its slots.
enum object_type : int {
    kScopeObject,      // ids: of variables; slots: the outer scope, then a value for each of ids
    kMacroObject,      // node; slots: the scope it was defined in
    kNamespaceObject,  // names: of attributes; slots: a value for each of names
    kLoopObject,       // node, at, index0 and what follows; slots: see loop_slot
    kFunctionObject,   // function
    kMethodObject,     // function; slots: the operand
    kRangeObject,      // range, stop
    kGeneratorObject,  // at, how, wanted, function, names: of the last arguments; slots: the source, a path, arguments
    kViewObject,       // how: k(eys), v(alues), i(tems); slots: a map
    kCyclerObject,     // at; slots: items
    kJoinerObject,     // at; slots: the separator
    kBytesObject,      // slots: a string
};

enum loop_slot : int { kLoopSource, kLoopOuterScope, kLoopBefore, kLoopNow, kLoopAfter, kLoopChanged, kLoopSlots };

struct slice_range {
    int64_t first = 0, step = 1, size = 0;
};

struct template_object : object_payload {
    using object_payload::object_payload;
    const template_node* node = nullptr;
    const native_function* function = nullptr;
    std::vector<int32_t> ids;
    std::vector<std::string> names;
    slice_range range;
    int64_t stop = 0;
    size_t at = 0;  // how many items were taken, or calls made
    // Of a generator: it yields i(tems), a(ttributes of items: slots[1]), f(iltered items), s(elected items: those for
    // which slots[1], or else the item, is as wanted), items t(ested by a function).
    char how = 'i';
    bool wanted = true;
    int64_t index0 = -1, length = -1, depth0 = 0;
    bool has_condition = false, has_before = false, has_after = false, has_changed = false;
};

// The object of a value of kind object.
inline template_object* object_of(const value& v) { return (template_object*)v.as_object(); }
// nullptr: the value is not of this type.
inline template_object* object_of(const value& v, object_type type) {
    return v.is(value_kind::object) && v.as_object()->type == type ? object_of(v) : nullptr;
}

class template_run {
  public:
    template_run(const template_tree& t, const template_limits& l, const template_time& n, error_text& e)
        : tree(t), limits(l), now(n), err(e), n_steps(l.max_steps) {
        meter.max_bytes = l.max_memory_bytes;
    }
    ~template_run();

    duet_status render(const value& variables, rendered_template* out);

    // ---- errors and limits ----
    value fail(const std::string& what, duet_status code = DUET_ERR_ARG);  // undefined, to be returned
    bool reject(const std::string& what) {                                 // fails, as false
        fail(what);
        return false;
    }
    value refuse(const value& v, const char* what);  // fails with what, or with what v says when it is undefined
    value overflow() { return fail("integer overflow", DUET_ERR_UNSUPPORTED); }
    bool charge(uint64_t n);      // takes steps away; false after an error
    bool has_room(size_t bytes);  // for so many bytes more; false after an error
    // What it costs to find needle, which may begin everywhere in hay without being there.
    bool charge_search(std::string_view hay, std::string_view needle) {
        return charge(hay.size() / 16 + needle.size() / 256 * hay.size());
    }
    bool failed() const { return status != DUET_OK; }

    // ---- making values ----
    value make(traced_text t);
    value make(std::string s) { return make(traced_text(std::move(s), false)); }
    value make_sequence(std::vector<value> items, value_kind kind);
    value make_list(std::vector<value> items) { return make_sequence(std::move(items), value_kind::list); }
    value make_tuple(std::vector<value> items) { return make_sequence(std::move(items), value_kind::tuple); }
    value make_map(std::vector<value_member> members);  // checks that keys may be keys
    value make_object(object_type type, std::vector<value> slots, template_object** out = nullptr);
    void keep(const value& object) { kept_.push_back(object); }  // one that may come to refer to itself
    value undefined(std::string what) { return value::of_undefined(std::move(what)); }
    value no_attribute(const value& object, std::string_view name);

    // ---- what Python does with values (template_values.cpp) ----
    bool is_true(const value& v);
    void print(const value& v, traced_text* out);  // str
    traced_text to_text(const value& v);
    void print_repr(const value& v, traced_text* out, int level = 0);
    int64_t length(const value& v, bool may_fail = true);  // -1: it has none
    bool is_hashable(const value& v, int level = 0);
    bool compare(char op, const value& a, const value& b);  // a compare_op
    bool equal(const value& a, const value& b);
    bool less(const value& a, const value& b);
    bool contains(const value& container, const value& item);
    bool is_iterable(const value& v);
    bool is_indexed(const value& v);  // what [0] may be asked of, and maps
    // The item at *at, which moves on; *at is 0 at first, and its meaning depends on the kind. false: no more.
    bool next_item(const value& source, size_t* at, value* out);
    bool collect(const value& source, std::vector<value>* out);  // all items
    bool to_index(const value& v, int64_t* out);
    // The rules of Python's slice.indices. false: not integers, or step is 0 (an error).
    bool to_slice(const value& start, const value& stop, const value& step, int64_t size, slice_range* out);
    value arithmetic(char op, const value& a, const value& b);  // + - * / % P (power) D (floor division)

    // ---- attributes and calls (template_eval.cpp) ----
    value get_attribute(const value& object, std::string_view name);
    value get_item(const value& object, const value& key);
    value get_path(value object, const value& path);  // what attribute= names: "a.b.0", an integer, or none
    value get_slice(const value& object, const value& start, const value& stop, const value& step);
    value call(const value& function, call_arguments& arguments);
    value call_native(const native_function& function, call_arguments& arguments);
    value call_macro(const value& macro, call_arguments& arguments);

    value eval(const template_node* n);

    const template_tree& tree;
    const template_limits& limits;
    template_time now;
    error_text& err;
    duet_status status = DUET_OK;
    memory_meter meter;
    uint64_t n_steps;
    int depth = 0;
    uint32_t line = 1;
    bool is_autoescape = false;

    // Counts how deep the run is nested, for as long as it lives.
    struct nesting {
        template_run& r;
        bool is_good;
        explicit nesting(template_run* run) : r(*run), is_good(++r.depth <= r.limits.max_depth) {
            if (!is_good)
                r.fail("nested too deeply: want at most " + std::to_string(r.limits.max_depth) + " levels",
                       DUET_ERR_FULL);
        }
        ~nesting() { r.depth--; }
    };

  private:
    enum class flow { on, break_loop, continue_loop };

    // ---- statements (template_run.cpp) ----
    flow exec(const template_node* n);
    flow exec_if(const template_node* n);
    flow exec_captured(const template_node* n);
    flow exec_scope(const template_node* body, const template_node* with = nullptr);
    flow run_loop(const template_node* n, const value& iterable, int64_t depth0);
    bool fetch(template_object* loop, value* out);
    bool advance(template_object* loop);
    void note_message(const value& item, size_t begin, bool has_written);
    void emit(const value& v);
    void emit(const traced_text& t);
    void assign(const template_node* target, value v);
    void set(int32_t name, value v);
    value lookup(int32_t name);
    void enter_scope(const value& parent, const template_node* body);
    value define_macro(const template_node* n);
    template <class Run> value capture(Run run);

    // ---- expressions (template_eval.cpp) ----
    value eval_items(const template_node* n);
    value eval_item(const template_node* n);
    value eval_call(const template_node* n, const value* caller = nullptr);
    value eval_unary(const template_node* n);
    value eval_compare(const template_node* n);
    value eval_concat(const template_node* n);
    void eval_arguments(const template_node* n, call_arguments* out);
    value loop_attribute(template_object* loop, std::string_view name);
    value object_attribute(const value& object, std::string_view name);
    int64_t loop_length(template_object* loop);
    value call_loop(const value& loop, call_arguments& arguments);
    bool next_generated(template_object* generator, value* out);

    void prepare_variables(const value& variables);

    traced_text* out_ = nullptr;
    traced_text main_out_;
    value scope_;  // the innermost one; null: the root
    std::vector<value> root_;
    std::vector<value> kept_;  // objects that may refer to themselves: emptied at the end
    value captured_;           // what the innermost block with filters has captured
    std::vector<std::pair<const void*, uint32_t>> messages_;  // objects of messages in the order of their addresses
    std::vector<int64_t> message_starts_;
    std::vector<bool> has_written_;  // of messages: message_starts_ is final
};

// ---- text (template_strings.cpp, template_format.cpp); the results are bounded ----

traced_text padded(template_run& run, const traced_text& t, int64_t width, char align, std::string_view fill,
                   size_t n_sign = 0);
traced_text format_percent(template_run& run, const traced_text& format, const value& arguments);  // format % arguments
traced_text format_braces(template_run& run, const traced_text& format, const call_arguments& arguments);  // str.format
std::string format_time(const template_time& time, std::string_view format);                               // strftime

}  // namespace duet
