/// Time that passes for one engine.
#pragma once

#include "opal/ft/membership/stabilizer.hpp"

#include <algorithm>

namespace ft::membership {

/// Calls the engine at each of its deadlines in the `how_long` after `now`, which moves on, and
/// note() with what it says.
template <typename F>
void pass(Stabilizer &engine, base::Time &now, base::Duration how_long, F &&note)
{
    const base::Time end = now + how_long;
    while (engine.next_deadline() <= end) {
        now = std::max(now, engine.next_deadline());
        Output out;
        engine.on_time(now, out);
        note(out);
    }
    now = end;
}

/// What a member that runs says to a heartbeat or a question.
inline Message answer_to(const Message &m)
{
    Message answer;
    answer.type = m.type == Type::heartbeat ? Type::heartbeat : Type::i_am_well;
    answer.beat = m.beat;
    answer.echo = m.beat;
    return answer;
}

} // namespace ft::membership
