// models/chat_grammar.h: what the bytes of a call must be, for constrained generation; from chat_forms.def.
// Must not know: tokens, sampling. Main path: a request with tools -> [models/chat_grammar] -> models/grammar
#pragma once
#include "chat_parser.h"
#include "grammar.h"

namespace duet {

// How much of an answer is constrained.
//   A required or a named call: the whole answer is *out (several tools; one tool).
//   auto: free text until one of *triggers has been written; from the first byte of the trigger on the answer is *out.
//   (Where a trigger is the beginning of text too, as for calls without markers, that text is lost as an answer.)
// parallel: several calls, if the form can hold them; otherwise one. Arguments between tags and as literals come in the
// order of the schema's properties, for literals the required ones first. Markers are plain bytes: the tokens of a
// vocabulary that spell them must be in its token_tree.
// DUET_ERR_ARG: no tools; DUET_ERR_UNSUPPORTED: the form has no calls, or a schema holds what models/schema does not
// keep to; DUET_ERR_FORMAT: not a schema. Nothing of *out and *triggers is valid then.
duet_status add_calls(chat_form form, const std::vector<chat_tool>& tools, bool parallel, grammar_builder& builder,
                      grammar_builder::expr* out, std::vector<std::string>* triggers, error_text& err);

}  // namespace duet
