/// How many files a daemon may have open. It needs one for its connection to each other daemon, as
/// root and with a flat channel to all, and a handful for each of its ranks; a user's usual limit
/// is 1024.
#pragma once

#include <cstdint>

namespace ft::radixft {

/// Lets this process have as many as the system allows. What it starts by fork() gets the limit
/// back that was there before, in case it goes by that.
void raise_open_files() noexcept;

/// How many it may have now.
std::uint64_t most_open_files() noexcept;

} // namespace ft::radixft
