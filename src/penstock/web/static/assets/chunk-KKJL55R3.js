var h={zh:"zh-6bbdd6039b.json"};export{h as a};
