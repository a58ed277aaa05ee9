// models/template_tree.h: a compiled chat template: the tokens of its source and the tree of its statements.
// Owns: the grammar. Must not know: how a template is run.
// Main path: models/template -> [models/template_parse] -> models/template_run
#pragma once
#include "template.h"
#include "template_functions.h"
#include "value.h"

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace duet {

// clang-format off
enum class token_kind : uint8_t {
    end, data, print_begin, print_end, block_begin, block_end, name, string, integer, real, op
};
// clang-format on

// The text is a view into the source; of a string it holds what stands between the quotes.
struct template_token {
    token_kind kind = token_kind::end;
    uint32_t line = 1;
    std::string_view text;
};

// The token as messages name it.
std::string describe(const template_token& t);

// The source with \n as every line end, without the last one.
std::string with_line_ends(std::string_view source);

// Cuts the source, in which every line ends with \n, into tokens; the last one is token_kind::end.
duet_status lex_template(std::string_view source, const template_limits& limits, std::vector<template_token>* out,
                         error_text& err);

// What a node's kids are stands behind each kind; "?" marks one that may be nullptr.
enum class node_kind : uint8_t {
    constant,
    name,       // or the target of an assignment
    captured,   // what a filter block or set block has captured
    list,       // items
    tuple,      // items, or targets of an assignment
    map,        // key, value, key, value ...
    attribute,  // object; text: the name
    member,     // the target ns.attr of an assignment: name; text: the attribute
    item,       // object, subscript
    slice,      // first?, end?, step?
    call,       // function, arguments, named arguments (as many as names)
    filter,     // operand, arguments, named arguments; function
    test,       // operand, arguments, named arguments; function
    unary,      // operand; op: + - !
    binary,     // left, right; op: + - * / % P (power) D (floor division)
    compare,    // first, then the others; text: an operator for each of the others, as in compare_op
    both,       // left, right: and
    either,     // left, right: or
    choice,     // condition, then, else?
    concat,     // parts, joined as strings
    // statements
    body,        // statements; names: variables that its scope hides until it assigns them
    data,        // text
    print,       // expressions
    for_loop,    // target, iterable, condition?, body, else?; op: 'r' when recursive
    if_chain,    // condition, body, condition, body ..., else? at the end
    assign,      // target, value
    capture,     // target?, filters?, body
    macro,       // body, then a default? for each of names; name; op: macro_flags
    call_block,  // call, macro
    with,        // target, value ..., body
    autoescape,  // condition, body
    break_loop,
    continue_loop,
    unsupported,  // text: the tag, which is an error when it is run
};

enum macro_flags : uint8_t { kMacroCaller = 1, kMacroKwargs = 2, kMacroVarargs = 4 };

// The operators of node_kind::compare: equal, not equal, and "in".
// clang-format off
enum compare_op : char {
    kEqual = '=', kUnequal = '!', kLess = '<', kLessEqual = 'l', kGreater = '>', kGreaterEqual = 'g',
    kIn = 'i', kNotIn = 'n'
};
// clang-format on

struct template_node {
    node_kind kind = node_kind::constant;
    uint8_t op = 0;
    uint16_t height = 1;  // of the tree below
    uint32_t line = 1;
    int32_t name = -1;                          // index into names
    const native_function* function = nullptr;  // the filter or test; nullptr: there is none of that name (text)
    value constant;                             // the text of attribute, data, compare, unsupported
    std::vector<template_node*> kids;
    std::vector<int32_t> names;
    template_node *star = nullptr, *star_star = nullptr;  // f(*star, **star_star)
    std::string_view text() const { return constant.as_string(); }
};

// The first names of every tree: those that the interpreter itself sets.
enum known_name : int32_t { kNameLoop, kNameCaller, kNameKwargs, kNameVarargs, kNameMessages };

struct template_tree {
    std::string source;
    std::deque<template_node> nodes;
    std::vector<std::string> names;  // of variables and arguments
    std::unordered_map<std::string, int32_t> name_index;
    template_node* root = nullptr;
    int32_t name_id(std::string_view name);
};

// Source with any line ends.
duet_status parse_template(std::string_view text, const template_limits& limits, template_tree* out, error_text& err);

// Tells each body that has a scope of its own which names it hides (template_scopes.cpp).
void find_hidden_names(template_tree* tree);

}  // namespace duet
