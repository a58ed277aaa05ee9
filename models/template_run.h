// models/template_run.h: the interpreter: what a template's statements, operators, filters and methods share while it
// runs. The first error is kept in err and makes failed true; from then on results do not matter, and every loop ends.
// Main path: models/template_parse -> [models/template_run] -> models/template_eval, template_filters, template_methods
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

// ---- objects that only templates have; the values they hold stand in slots ----

enum object_type : int {
    kScopeObject,      // slots: the outer scope, then variables
    kMacroObject,      // slots: the scope it was defined in
    kNamespaceObject,  // slots: attributes
    kLoopObject,       // slots: see loop_object
    kFunctionObject,
    kMethodObject,  // slots: the object it belongs to
    kRangeObject,
    kGeneratorObject,  // slots: the source, then arguments
    kViewObject,       // slots: a map; its keys, values or items
    kCyclerObject,     // slots: items
    kJoinerObject,     // slots: the separator
    kBytesObject,      // slots: a string
};

struct scope_object : object_payload {
    using object_payload::object_payload;
    std::vector<int32_t> names;  // of slots[1] and on
};
struct macro_object : object_payload {
    using object_payload::object_payload;
    const template_node* node = nullptr;
};
struct namespace_object : object_payload {
    using object_payload::object_payload;
    std::vector<std::string> names;
};
struct loop_object : object_payload {
    using object_payload::object_payload;
    enum { kSource, kOuterScope, kBefore, kNow, kAfter, kChanged, kSlots };
    const template_node* node = nullptr;
    bool has_condition = false, has_before = false, has_after = false, has_changed = false;
    size_t at = 0;
    int64_t index0 = -1, length = -1, depth0 = 0;
};
struct function_object : object_payload {
    using object_payload::object_payload;
    const native_function* function = nullptr;
};
struct range_object : object_payload {
    using object_payload::object_payload;
    int64_t start = 0, step = 1, size = 0, stop = 0;
};
struct generator_object : object_payload {
    using object_payload::object_payload;
    enum { kPlain, kMapAttribute, kMapFilter, kSelect } how = kPlain;
    int32_t i_function = -1;         // the filter, or the test of kSelect; -1: there is none of that name
    bool wanted = true;              // the result of the test that lets an item pass
    bool has_test = false;           // else an item passes that is true
    bool has_attribute = false;      // slots[1]: which one is tested; else the item itself is
    std::vector<std::string> names;  // of the last arguments
    size_t at = 0;
};
struct view_object : object_payload {
    using object_payload::object_payload;
    char part = 'k';  // k(eys), v(alues), i(tems)
};
struct counter_object : object_payload {  // kCyclerObject, kJoinerObject
    using object_payload::object_payload;
    size_t at = 0;
};

template <class T> T* new_object(object_type type) {
    return new T(type, [](object_payload* p) { delete (T*)p; });
}

struct call_arguments {
    std::vector<value> values;
    std::vector<std::pair<std::string, value>> named;
};

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
    bool charge(uint64_t n);                                               // takes steps away; false after an error
    bool has_room(size_t bytes);  // for so many bytes more; false after an error
    bool failed() const { return status != DUET_OK; }

    // ---- making values ----
    value make(traced_text t);
    value make(std::string s, bool is_input = false) { return make(traced_text(std::move(s), is_input)); }
    value make_list(std::vector<value> items);
    value make_tuple(std::vector<value> items);
    value make_map(std::vector<value_member> members);  // checks that keys may be keys
    value make_object(object_payload* object);
    void keep(const value& object) { kept_.push_back(object); }  // one that may come to refer to itself
    value make_generator(value list);
    value undefined(std::string what) { return value::of_undefined(std::move(what)); }
    value no_attribute(const value& object, std::string_view name);

    // ---- what Python does with values (template_values.cpp) ----
    bool is_true(const value& v);
    void print(const value& v, traced_text* out);  // str
    void print_repr(const value& v, traced_text* out, int depth = 0);
    traced_text to_text(const value& v);
    bool equal(const value& a, const value& b);
    bool less(const value& a, const value& b);  // fails for kinds that have no order
    bool contains(const value& container, const value& item);
    bool is_hashable(const value& v, int depth = 0);
    int64_t length(const value& v, bool may_fail = true);  // -1: has none
    bool is_iterable(const value& v);
    bool is_indexed(const value& v);  // has a length and v[i]
    // Item after item: *at is 0 at first. false: no more, or an error.
    bool next_item(const value& source, size_t* at, value* out);
    bool next_generated(generator_object* g, value* out);
    bool collect(const value& source, std::vector<value>* out);  // all items; false after an error
    value arithmetic(char op, const value& a, const value& b);
    bool to_index(const value& v, int64_t* out);  // an integer, else an error
    bool to_slice(const value& start, const value& stop, const value& step, int64_t size, int64_t out[3]);

    // ---- attributes and calls (template_eval.cpp) ----
    value get_attribute(const value& object, std::string_view name);
    value get_item(const value& object, const value& key);
    value get_path(value object, const value& path);  // "a.b.0", or an integer
    value get_slice(const value& object, const value& start, const value& stop, const value& step);
    value call(const value& function, call_arguments& arguments);
    value call_native(const native_function& function, const value* self, call_arguments& arguments);
    value call_macro(const value& macro, call_arguments& arguments);
    bool call_test(int32_t i_test, const value& operand, call_arguments& arguments);

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
    flow exec_with(const template_node* n);
    flow exec_autoescape(const template_node* n);
    flow exec_set_block(const template_node* n);
    flow exec_filter_block(const template_node* n);
    flow exec_scope(const template_node* body);
    flow run_loop(const template_node* n, const value& iterable, int64_t depth0);
    bool fetch(loop_object* loop, value* out);
    bool advance(loop_object* loop);
    void note_message(const value& item, size_t begin, bool has_written);
    void emit(const value& v);
    void emit(const traced_text& t);
    void assign(const template_node* target, value v);
    void set(int32_t name, value v);
    value lookup(int32_t name);
    const value* find_variable(int32_t name);
    void enter_scope(const value& parent);
    void hide_names(const template_node* body);
    value define_macro(const template_node* n);
    value captured_filters(const template_node* filters, traced_text captured);
    template <class Run> traced_text capture(Run run);

    // ---- expressions (template_eval.cpp) ----
    value eval_list(const template_node* n);
    value eval_map(const template_node* n);
    value eval_item(const template_node* n);
    value eval_call(const template_node* n, const value* caller = nullptr);
    value eval_filter(const template_node* n);
    value eval_test(const template_node* n);
    value eval_unary(const template_node* n);
    value eval_compare(const template_node* n);
    value eval_concat(const template_node* n);
    void eval_arguments(const template_node* n, call_arguments* out);
    value loop_attribute(loop_object* loop, const value& self, std::string_view name);
    value object_attribute(const value& object, std::string_view name);
    value scalar_attribute(const value& object, std::string_view name);
    value native_method(const value& self, const native_function* method);
    int64_t loop_length(loop_object* loop);
    value call_loop(const value& loop, call_arguments& arguments);

    void prepare_variables(const value& variables);

    traced_text* out_ = nullptr;
    traced_text main_out_;
    value scope_;  // the innermost one; null: the root
    std::vector<value> root_;
    std::vector<bool> has_root_;
    std::vector<value> kept_;  // objects that may refer to themselves: emptied at the end
    value captured_;           // what the innermost block with filters has captured
    std::vector<std::pair<const void*, uint32_t>> messages_;  // objects of messages in the order of their addresses
    std::vector<int64_t> message_starts_;
    std::vector<bool> has_written_;  // of messages: message_starts_ is final
};

// ---- what filters and methods share (template_filters.cpp); the results are bounded ----
value join_values(template_run& run, const value& iterable, const traced_text& separator, const value& path,
                  bool only_strings);
value replace_checked(template_run& run, const traced_text& t, const traced_text& from, const traced_text& to,
                      int64_t max_count);
// where: l(eft), r(ight) or c(enter), as str.ljust, rjust and center have it; n_chars: of t
value pad_checked(template_run& run, const traced_text& t, int64_t width, int64_t n_chars, char where,
                  std::string_view fill);

// Argument i of a call: an integer (anything else is an error), and whether it is true. Absent: otherwise, false.
inline int64_t integer_of(native_call& c, int i, int64_t otherwise) {
    int64_t n = otherwise;
    if (c.given[i]) c.run.to_index(c[i], &n);
    return n;
}
inline bool flag_of(native_call& c, int i) { return c.given[i] && c.run.is_true(c[i]); }

// Python's float(v); otherwise where it is none.
value filter_float_of(template_run& run, const value& v, const value& otherwise);

// ---- formatting (template_format.cpp) ----
traced_text format_percent(template_run& run, const traced_text& format, const value& arguments);  // format % arguments
traced_text format_braces(template_run& run, const traced_text& format, const call_arguments& arguments);  // str.format
std::string format_time(const template_time& time, std::string_view format);                               // strftime

}  // namespace duet
