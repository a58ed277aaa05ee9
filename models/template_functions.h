// models/template_functions.h: the tables of functions that templates may call: filters, tests, methods, globals.
// Used by models/template_parse.cpp (which filters there are), template_eval.cpp (calls), template_*.cpp (the tables)
#pragma once
#include "value.h"

#include <span>
#include <string_view>

namespace duet {

class template_run;
struct call_arguments;

// What a function gets: its arguments in the order of its parameters.
struct native_call {
    static constexpr int kMaxParameters = 7;
    template_run& run;
    const value* self;  // of a method
    value args[kMaxParameters];
    bool given[kMaxParameters] = {};
    call_arguments* rest = nullptr;  // what the parameter "*" takes

    const value& operator[](int i) const { return args[i]; }
};

// parameters: names with blanks between them; "x?" may be left out, "*" takes all others, named ones too; a "/" at the
// start: none may be named. Of filters and tests the first is the operand.
struct native_function {
    std::string_view name;
    const char* parameters;
    value (*run)(native_call& c);
};

int32_t find_filter(std::string_view name);  // -1: none
int32_t find_test(std::string_view name);
const native_function& filter_at(int32_t i);
const native_function& test_at(int32_t i);
const native_function* find_global(std::string_view name);
// The method of a kind of values, nullptr: none. Methods that would change a value are not there (see
// is_forbidden_method).
const native_function* find_method(const value& self, std::string_view name);
bool is_forbidden_method(const value& self, std::string_view name);

// The part of the table of filters that yields text or numbers.
std::span<const native_function> text_filters();

}  // namespace duet
