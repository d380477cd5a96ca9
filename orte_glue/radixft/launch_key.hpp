/// The keys of a job's messages, and how the daemons get them.
///
/// mpirun draws a launch key for each job and hands it to its daemons with the launch: as a setting
/// in its environment, which every launcher of the runtime passes on, on the daemon's command line
/// or in its environment. What daemons say before the job begins is sealed with it. The key of
/// everything later comes from it and from a number drawn by chance that mpirun's GO brings. So a
/// forger must have read the command lines of mpirun's host while the job was started, and the
/// network as well. A daemon wipes the launch key off its command line and keeps it from its ranks.
/// One thread.
#pragma once

#include "opal/ft/membership/seal.hpp"

#include <optional>

namespace ft::radixft {

/// Sixteen bytes by chance; nothing when the system has none (errno says why).
std::optional<membership::Key> draw_key() noexcept;

/// At mpirun: launchers pass the key on from now on, or no longer.
void hand_out(const membership::Key &key) noexcept;
void hand_out_no_more() noexcept;

/// While one lives, so do launchers that start daemons with the environment which the runtime has
/// put aside, and which is that of mpirun's own ranks at other times.
class WithEnvironment {
  public:
    explicit WithEnvironment(const membership::Key &key) noexcept;
    ~WithEnvironment();
    WithEnvironment(const WithEnvironment &) = delete;
    WithEnvironment &operator=(const WithEnvironment &) = delete;
};

/// At a daemon: the key with which it was started; nothing when its launcher passed none on.
std::optional<membership::Key> handed_out() noexcept;

/// The key of a job that was started with `launch_key` and begun with `number`.
membership::Key job_key(const membership::Key &launch_key, const membership::Key &number);

} // namespace ft::radixft
