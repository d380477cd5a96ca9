/// The few lines of the Test Anything Protocol that the simulator's programs need.
#pragma once

#include <cstdio>
#include <string>

namespace sim {

class Tap {
  public:
    void result(bool good, const std::string &what)
    {
        std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++count_, what.c_str());
        std::fflush(stdout);
        failed_ = failed_ || !good;
    }
    void note(const std::string &text) { std::printf("# %s\n", text.c_str()); }
    /// Prints the plan line; what main returns.
    int done() const
    {
        std::printf("1..%d\n", count_);
        return failed_ ? 1 : 0;
    }

  private:
    int count_ = 0;
    bool failed_ = false;
};

} // namespace sim
