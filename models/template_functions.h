// models/template_functions.h: the tables of functions that templates may call: filters, tests, methods, globals.
// Used by models/template_parse.cpp (which filters there are), template_eval.cpp (calls), template_*.cpp (the tables)
#pragma once
#include "value.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace duet {

class template_run;

struct call_arguments {
    std::vector<value> values;
    std::vector<std::pair<std::string, value>> named;
};

// What a function gets: its arguments in the order of its parameters. After an error each of these functions returns
// something empty, and what the called function makes of that does not matter.
struct native_call {
    static constexpr int kMaxParameters = 7;
    template_run& run;
    value args[kMaxParameters];
    bool given[kMaxParameters] = {};
    call_arguments* rest = nullptr;  // what the parameter "*" takes

    const value& operator[](int i) const { return args[i]; }
    bool has(int i) const { return given[i] && !args[i].is_null(); }
    bool flag(int i);                                           // given and true
    int64_t integer(int i, int64_t absent = 0);                 // anything else is an error
    const traced_text& string(int i, const char* absent = "");  // anything else is an error
    const traced_text& text(int i, const char* absent = "");    // as Python's str() has it
    std::vector<value> items();                                 // of the first argument
};

// names: with blanks between them; find_function takes each. parameters: names with blanks between them; "x?" may be
// left out, "*" takes all others, named ones too; a "/" at the start: none may be named. Of filters, tests and methods
// the first is the operand.
struct native_function {
    std::string_view names;
    const char* parameters;
    value (*run)(native_call& c);
};

// nullptr: there is none of that name.
const native_function* find_function(std::span<const native_function> table, std::string_view name);
const native_function* find_filter(std::string_view name);
const native_function* find_test(std::string_view name);
const native_function* find_global(std::string_view name);
// Methods that would change a value are not there (see is_forbidden_method).
const native_function* find_method(const value& self, std::string_view name);
bool is_forbidden_method(const value& self, std::string_view name);

// The tables that the functions above search.
extern const std::span<const native_function> kTextFilters, kListFilters, kStringMethods, kIntegerMethods, kRealMethods;

}  // namespace duet
