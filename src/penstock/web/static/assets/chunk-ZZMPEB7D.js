var z={zh:"zh-51de55a85a.json"};export{z as a};
