"""Language models: one door to servers, to local models and to recorded answers.

``open_session`` makes a session from the text a user gives. What is asked and how an answer is read
is the business of whoever asks (``foretune.search.proposers.llm``).

``_base`` is the door; ``_endpoint`` asks servers, ``_local`` a model in this process
(``_drawing``), ``_transcript`` answers from disk. ``_session`` counts and bounds calls
(``_question``, ``_usage``), ``_open`` makes one, ``_identity`` names models.
"""

from foretune.llm._base import Answer, LanguageModel, LlmError, Message
from foretune.llm._endpoint import Endpoint, EndpointConfig
from foretune.llm._identity import identity
from foretune.llm._local import LocalModel
from foretune.llm._open import open_session
from foretune.llm._question import Question
from foretune.llm._session import Session
from foretune.llm._transcript import Replay, Transcript
from foretune.llm._usage import SessionConfig, Usage

__all__ = [
    "Answer",
    "Endpoint",
    "EndpointConfig",
    "LanguageModel",
    "LlmError",
    "LocalModel",
    "Message",
    "Question",
    "Replay",
    "Session",
    "SessionConfig",
    "Transcript",
    "Usage",
    "identity",
    "open_session",
]
