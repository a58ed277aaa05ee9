// models/chat_grammar.h: the rules for the bytes of a call in constrained generation, from chat_forms.def.
// Must not know: tokens, sampling. Main path: a request with tools -> [models/chat_grammar] -> models/grammar
#pragma once
#include "chat_parser.h"
#include "grammar.h"

namespace duet {

// How much of an answer is constrained:
// - For required calls (several tools) or a named call (one tool), *out is the whole answer.
// - For auto, the text is free until one of *triggers has been written; from the first byte of the trigger on, *out is
//   the answer. A trigger may also begin ordinary text, as for calls without markers; such text cannot be written.
// text: the template's. Of a form's ways to write a call, only those that begin as it says are in the grammar, or all
// if none does: each holds the schemas of all tools once more.
// parallel: several calls if the form can hold them; otherwise one. Arguments between tags and as literals come in the
// order of the schema's properties. Markers may be control tokens.
// What models/schema does not keep to in the schema of a tool that is not strict is left out (schema_options).
// DUET_ERR_ARG: no tools. DUET_ERR_UNSUPPORTED: the form has no calls, or a strict tool's schema uses something that
// models/schema does not keep to. DUET_ERR_FORMAT: not a schema. After an error *out and *triggers are not valid.
duet_status add_calls(chat_form form, std::string_view text, const std::vector<chat_tool>& tools, bool parallel,
                      grammar_builder& builder, grammar_builder::expr* out, std::vector<std::string>* triggers,
                      error_text& err);

}  // namespace duet
