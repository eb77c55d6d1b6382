// A TVM RPC server without Python, as a small board runs it, and an emulator of one.
//
// usage: server PORT FOLDER FACTS
//
// FOLDER takes what is uploaded, FACTS is what foretune asks a server about itself (JSON). Each
// session runs in a process of its own.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace ffi = tvm::ffi;

namespace {

constexpr int32_t kMagic = 0xff271;

bool Receive(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(fd, at, size, 0);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool Send(int fd, const void* data, size_t size) {
  return send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool Greet(int fd) {
  int32_t magic = 0, length = 0;
  if (!Receive(fd, &magic, 4) || magic != kMagic) return false;
  if (!Receive(fd, &length, 4) || length < 0 || length > 4096) return false;
  std::string key(static_cast<size_t>(length), '\0');
  if (!Receive(fd, key.data(), key.size())) return false;
  const std::string own = "server:";
  length = static_cast<int32_t>(own.size());
  return Send(fd, &kMagic, 4) && Send(fd, &length, 4) && Send(fd, own.data(), own.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string folder = argv[2], facts = argv[3];
  signal(SIGCHLD, SIG_IGN);
  ffi::Function::SetGlobal(
      "tvm.rpc.server.workpath",
      ffi::Function::FromTyped([folder](ffi::String name) -> ffi::String {
        return folder + "/" + std::string(name);
      }),
      true);
  ffi::Function::SetGlobal("tvm.rpc.server.load_module",
                           ffi::Function::FromTyped([folder](ffi::String name) -> ffi::Module {
                             return ffi::Module::LoadFromFile(folder + "/" + std::string(name));
                           }),
                           true);
  ffi::Function::SetGlobal(
      "foretune.device.facts",
      ffi::Function::FromTyped([facts]() -> ffi::String { return facts; }), true);

  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 3;
  if (listen(listener, 4) != 0) return 3;
  std::cout << "listening" << std::endl;
  while (true) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection < 0) continue;
    if (fork() == 0) {
      close(listener);
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (!Greet(connection)) _exit(1);
      try {
        ffi::Function::GetGlobalRequired("rpc.ServerLoop")(static_cast<int64_t>(connection));
      } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        _exit(1);
      }
      _exit(0);
    }
    close(connection);
  }
}
