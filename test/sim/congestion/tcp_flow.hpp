/// \file
/// A bulk flow of TCP with CUBIC (RFC 9438) and SACK over a Link, to be shared with: enough of it
/// to compete as TCP does, without its bytes.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "test/sim/congestion/link.hpp"

namespace ft::sim {

class TcpFlow {
  public:
    static constexpr double segment = 1448;
    static constexpr std::uint64_t on_wire = 1514;

    explicit TcpFlow(Link &link) : link_(link) {}

    void begin()
    {
        last_ack_ = link_.now();
        send_some();
        watch();
    }
    [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }

  private:
    static constexpr double beta = 0.7;
    static constexpr double c = 0.4;
    static constexpr int reordering = 3;
    static constexpr base::Duration rto = base::Duration::from_ms(200);

    void send_some()
    {
        while (static_cast<double>(flying_.size()) < std::floor(window_)) {
            const std::uint64_t number = next_++;
            flying_[number] = link_.now();
            static_cast<void>(link_.send(on_wire, [this, number] {
                link_.send_back([this, number] { acknowledged(number); });
            }));
        }
    }
    void acknowledged(std::uint64_t number)
    {
        const auto found = flying_.find(number);
        if (found == flying_.end()) {
            return; // given up for lost
        }
        const double trip = static_cast<double>((link_.now() - found->second).ns()) * 1e-9;
        smoothed_ = smoothed_ == 0 ? trip : smoothed_ + (trip - smoothed_) / 8;
        flying_.erase(found);
        delivered_ += static_cast<std::uint64_t>(segment);
        last_ack_ = link_.now();
        bool lost = false;
        while (!flying_.empty() && flying_.begin()->first + reordering <= number) {
            lost = lost || flying_.begin()->first >= recovery_;
            flying_.erase(flying_.begin()); // what is sent instead counts as new
        }
        if (lost) {
            shrink(beta);
        } else if (window_ < threshold_) {
            window_ += 1;
        } else {
            grow();
        }
        send_some();
    }
    void shrink(double factor)
    {
        recovery_ = next_;
        top_ = window_ < top_ ? window_ * (1 + beta) / 2 : window_;
        window_ = std::max(window_ * factor, 2.0);
        threshold_ = window_;
        reno_ = window_;
        epoch_ = link_.now();
    }
    void grow()
    {
        const double t = static_cast<double>((link_.now() - epoch_).ns()) * 1e-9 + smoothed_;
        const double k = std::cbrt(top_ * (1 - beta) / c);
        const double cubic = c * (t - k) * (t - k) * (t - k) + top_;
        reno_ += 3 * (1 - beta) / (1 + beta) / window_;
        if (reno_ > cubic) {
            window_ = std::max(window_, reno_);
        } else {
            window_ += std::clamp(cubic - window_, 0.0, window_ / 2) / window_;
        }
    }
    void watch()
    {
        link_.at(link_.now() + rto, [this] {
            if (link_.now() - last_ack_ >= rto) {
                flying_.clear();
                shrink(0.1);
                last_ack_ = link_.now();
                send_some();
            }
            watch();
        });
    }

    Link &link_;
    std::map<std::uint64_t, base::Time> flying_;
    std::uint64_t next_ = 0;
    std::uint64_t recovery_ = 0;
    std::uint64_t delivered_ = 0;
    double window_ = 10;
    double threshold_ = 1e12;
    double top_ = 0;
    double reno_ = 0;
    double smoothed_ = 0;
    base::Time epoch_{};
    base::Time last_ack_{};
};

} // namespace ft::sim
