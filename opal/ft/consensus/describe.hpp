/// Messages and sets in words: for traces, golden scripts and verbose output.
#pragma once

#include "opal/ft/consensus/message.hpp"

#include <string>

namespace ft::consensus {

/// "nobody", or ranks and ranges of ranks: "1,4-7".
std::string describe(const RankSet &set);
/// One line, such as "answer of 1.0.1 ballot yes". A number is round.root.attempt.
std::string describe(const Message &message);

} // namespace ft::consensus
